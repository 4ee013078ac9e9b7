// Why a wait does not end: ranks that disagree, a circle of waits, or somebody who is late.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "collective/engine.h"

namespace pliant::collective {

/// One per long wait. Looks at what ranks published; never changes it.
class Diagnosis {
 public:
  explicit Diagnosis(Engine& engine);

  /// Called about every 100 ms of a wait. An error if it can never end; reports a stall in the log otherwise.
  std::optional<Error> look(std::uint32_t blocked_on);
  /// The ranks that use this operation's name with another shape. REQUIRES Engine::work_mutex_ held.
  std::optional<Error> mismatch_of(const Work& work);

 private:
  struct Blocked {
    std::uint32_t on = 0;
    std::uint32_t turns = 0;
    bool operator==(const Blocked&) const = default;
  };
  std::vector<Blocked> snapshot() const;
  std::string name_on(int rank, std::uint32_t on) const;
  /// Ranks that have not done what `rank` waits for.
  std::vector<int> awaited_by(int rank, std::uint32_t on) const;
  std::optional<Error> circle(const std::vector<Blocked>& blocked) const;
  void report_stall(std::uint32_t blocked_on, Nanos waited) const;

  Engine& engine_;
  Nanos began_;
  Nanos report_at_;
  Nanos still_since_;
  std::vector<Blocked> last_;
};

}  // namespace pliant::collective
