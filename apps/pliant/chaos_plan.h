// Which fault comes next, and to whom: pure functions of a seed and of what is known about the job.
//
// What is drawn from the seed (kinds, times, and numbers that choose among the workers there are) does not depend on
// the job, so that a seed names a schedule. Whom a draw strikes depends on who is there.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/chaos_kinds.h"
#include "base/clock.h"
#include "base/result.h"

namespace pliant::cli::chaos {

struct PlanOptions {
  std::uint64_t seed = 0;
  std::vector<Kind> kinds;
  Nanos every = std::chrono::seconds(1);          ///< the mean time between two events
  Nanos longest_pause = std::chrono::seconds(2);  ///< of what is stopped
  std::uint32_t least = 1, most = 4;              ///< workers, for resizes
};

/// A worker that runs.
struct WorkerSeen {
  std::uint64_t id = 0;
  std::string host{};
  bool member = false;       ///< of the newest view
  bool holds_state = false;  ///< has trained in it
  bool struck = false;       ///< was told to leave or to die, and has not yet
  bool stopped = false;      ///< by this process, or cut off
  /// Can carry the job on if the others are lost.
  bool sound() const { return member && holds_state && !struck && !stopped; }
};

/// What is known about the job.
struct Situation {
  std::vector<WorkerSeen> workers;  ///< by id
  std::uint32_t wanted = 1;
  bool coordinator = false;  ///< runs, and is not stopped
  bool agent = false;
  int coordinators_killed = 0;        ///< within kCoordinatorSpan
  std::vector<std::string> linked{};  ///< hosts whose links can be cut
  bool link_busy = false;             ///< one is cut, or slow
  bool store = false;                 ///< runs, and is not stopped
};

/// The agent gives up on a coordinator that dies five times within this time.
inline constexpr Nanos kCoordinatorSpan = std::chrono::seconds(10);
inline constexpr int kCoordinatorsMost = 3;

/// What follows from the seed alone.
struct Draw {
  Kind kind = Kind::kill;
  Nanos wait{0};  ///< after the event before
  std::array<std::uint64_t, 4> rolls{};
};

struct Event {
  Kind kind = Kind::kill;
  std::vector<std::uint64_t> victims{};  ///< workers, in the order in which they are struck
  std::uint32_t workers = 0;             ///< of a resize: how many
  std::string host{};
  Nanos pause{0};          ///< how long something is stopped, cut or slow
  Nanos delay{0};          ///< between the first and the second thing that is done
  std::uint64_t roll = 0;  ///< what is chosen later follows from it
};

class Planner {
 public:
  explicit Planner(PlanOptions options);

  /// The event of this number, from 0 on.
  Draw draw(std::uint64_t number) const;
  /// To whom it is done now. Code::refused with the reason if that must wait: unless the kind is `everybody`, one sound
  /// worker is spared, and one more for each that the job is about to leave out.
  Result<Event> aim(const Draw& draw, const Situation& now) const;
  /// Of join-kill, `delay` after the resize: the newcomer or a member. Nothing if nobody can be spared.
  static std::optional<std::uint64_t> second_victim(std::uint64_t roll, const Situation& now);

 private:
  Result<Event> aim_at_workers(const Draw& draw, const Situation& now) const;
  Result<Event> aim_at_size(const Draw& draw, const Situation& now) const;
  Result<Event> aim_at_service(const Draw& draw, const Situation& now) const;
  Result<Event> aim_at_host(const Draw& draw, const Situation& now) const;
  Nanos pause_of(std::uint64_t roll) const;

  PlanOptions options_;
};

/// Workers that can be killed, if `chosen` are killed as well.
std::vector<std::uint64_t> expendable(const Situation& now, const std::vector<std::uint64_t>& chosen = {});

}  // namespace pliant::cli::chaos
