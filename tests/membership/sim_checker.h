// What must hold at every moment of every simulated run, whoever says what to whom.
#pragma once

#include <map>

#include "membership/sim_types.h"

namespace pliant::membership::sim {

/// Remembers the first thing that went wrong, and nothing after it.
class Checker {
 public:
  /// All views that are entered form one chain: those of one epoch have the same members.
  void entered(Id id, const View& view);
  /// Nobody completes a step in a view beyond the first one of any later view.
  void completed(Id id, const View& view, const Entry& entry);
  /// A step is the same for everybody who ever commits it, those who are lost afterwards included.
  void committed(Id id, const Entry& entry);
  /// Steps `from` to `to` of this log are stable: every other member's stable steps are the same.
  void stable(Id id, const Log& log, std::size_t from, std::size_t to);
  /// Every sample of every epoch is consumed once by the steps of this log.
  void recount(Id id, const Log& log);
  void fail(Id id, const std::string& what);

  const std::string& failure() const { return failure_; }
  std::size_t stable_steps() const { return stable_.size(); }
  /// Of all views that were entered.
  std::uint64_t newest_epoch() const { return chain_.empty() ? 0 : chain_.rbegin()->first; }

 private:
  struct Done {
    std::uint64_t first = UINT64_MAX, last = 0;
  };
  std::map<std::uint64_t, std::vector<wire::Member>> chain_;  // by epoch
  std::map<std::uint64_t, Done> done_;                        // steps completed, by epoch of the view
  std::map<std::uint64_t, Entry> committed_;                  // by step
  Log stable_;
  std::string failure_;
};

}  // namespace pliant::membership::sim
