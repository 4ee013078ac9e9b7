// How workers ended badly, and of which ends the coordinator has yet to say something. Pure: no clock, no process.
//
//   a worker's process     it counts as a death
//   failed                 at once
//   ended, how is unknown  unless the coordinator says within kLastWord that it had said goodbye
//   ended with status 0    if the coordinator says that it said nothing of the end of its loop
//
// The process of a worker that an earlier agent has started is not this one's child: nobody tells how it ended.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "agent/blame.h"
#include "base/clock.h"

namespace pliant::agent {

class Deaths {
 public:
  /// For the coordinator to say how a worker ended, where nobody else can.
  static constexpr Nanos kLastWord = std::chrono::seconds(2);

  /// Deaths that are added until the next call count as simultaneous.
  void next_turn() { ++turn_; }
  /// A death of this turn.
  Death make(std::uint64_t id, const Ending& ending, Nanos after) const { return {id, ending, turn_, after}; }
  void add(const Death& death) { all_.push_back(death); }
  /// Without those that were forgotten.
  const std::vector<Death>& all() const { return all_; }
  /// It has nothing to do with how the job will end.
  void forget(std::uint64_t id) {
    std::erase_if(all_, [&](const Death& death) { return death.id == id; });
  }

  /// How it ended is not known, since `now`.
  void leave_open(const Death& death, Nanos now) { unexplained_.push_back({death, now + kLastWord}); }
  /// By the coordinator's word it left in good order, or it died: then that is the death.
  std::optional<Death> explain(std::uint64_t id, bool goodbye);
  /// One that nobody has explained in time; it died. Nothing: the others may still be explained.
  std::optional<Death> overdue(Nanos now);
  bool any_open() const { return !unexplained_.empty(); }

  /// The coordinator was told of an end; `heard`, if it was in reach. What it has heard from that worker may be on its
  /// way.
  void told(std::uint64_t id, bool heard, Nanos now);
  void answered(std::uint64_t id) { unanswered_.erase(id); }
  bool all_answered() const { return unanswered_.empty(); }
  /// When it was told last; 0: never.
  Nanos told_at() const { return told_at_; }

 private:
  struct Open {
    Death death;
    Nanos until{0};
  };
  int turn_ = 0;
  std::vector<Death> all_;
  std::deque<Open> unexplained_;  // in the order of their ends
  std::set<std::uint64_t> unanswered_;
  Nanos told_at_{0};
};

}  // namespace pliant::agent
