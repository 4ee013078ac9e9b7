// How many slots a Slurm cluster has for a job: where it runs already, and on nodes that are idle. Asks sinfo now and
// then.
//
// Threads: lives on its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/retry.h"
#include "apps/pliant/slurm_command.h"
#include "apps/pliant/slurm_queue.h"
#include "base/clock.h"
#include "net/loop.h"

namespace pliant::cli {

class SlurmIdle {
 public:
  static constexpr Nanos kPause = std::chrono::seconds(5);  ///< between two looks

  struct Events {
    std::function<std::uint32_t()> running;  ///< how many Slurm jobs of this job run now
    std::function<void()> on_change;         ///< of capacity()
    std::function<void(Retry& retry, const std::string& words)> on_failure;
  };
  /// Loop and options must outlive it.
  SlurmIdle(net::Loop& loop, const SlurmOptions& options, const SlurmPlace& place, std::vector<std::string> environment,
            Events events);

  /// To be called often. `may_look`: it is known which Slurm jobs run.
  void tick(bool may_look);
  /// Nothing while nobody can say.
  std::optional<std::uint32_t> capacity() const { return capacity_; }

 private:
  void on_answer(const SlurmCommand::Answer& answer);

  SteadyClock clock_;
  const SlurmOptions& options_;
  const std::vector<std::string> environment_;
  const Events events_;
  SlurmCommand sinfo_;
  Nanos next_look_{0};
  Retry looking_;
  std::uint32_t counted_running_ = 0;  // when it looked last
  std::optional<std::uint32_t> capacity_;
};

}  // namespace pliant::cli
