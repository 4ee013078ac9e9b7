// Who has gone from the views of this worker, and how: in good order, or left behind because it did not run or could
// not be reached. Whoever was left behind and lives comes back by itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "membership/view.h"

namespace pliant::session {

class Absentees {
 public:
  /// `view` is in force. In a change that was planned nobody is left behind.
  void on_view(const membership::View& view) {
    if (view.planned != view.epoch)
      for (const auto& member : last_.members)
        if (!departed_.contains(member.id) && !dead_.contains(member.id)) left_behind_.insert(member.id);
    for (const auto& member : view.members) left_behind_.erase(member.id);
    last_ = view;
  }
  /// This worker has settled in the view in force. Whoever is dead, or has said goodbye, and is not `at_hand` (in that
  /// view, or in what may follow it) will be in none.
  void on_settled(const std::set<std::uint64_t>& at_hand) {
    std::erase_if(departed_, [&](const auto& gone) { return !at_hand.contains(gone.first); });
    std::erase_if(dead_, [&](auto id) { return !at_hand.contains(id); });
  }
  /// There is a connection to it: an id may come back as another process.
  void on_found(std::uint64_t id) { dead_.erase(id); }
  /// It said goodbye, having acted last in the view with this epoch.
  void on_goodbye(std::uint64_t id, std::uint64_t epoch) {
    auto& last = departed_[id];
    last = std::max(last, epoch);
    left_behind_.erase(id);
  }
  void on_death(std::uint64_t id) {
    dead_.insert(id);
    left_behind_.erase(id);
  }

  /// Somebody waits for another view: until it is there, whoever says goodbye is as good as dead.
  void give_up(bool on_departed) { gives_up_ = on_departed; }
  bool gives_up() const { return gives_up_; }
  /// Those who said goodbye, and the epochs of their last views.
  const std::map<std::uint64_t, std::uint64_t>& departed() const { return departed_; }
  bool anybody_may_return() const { return !left_behind_.empty(); }
  std::size_t size() const { return departed_.size() + dead_.size() + left_behind_.size(); }

 private:
  membership::View last_;
  std::map<std::uint64_t, std::uint64_t> departed_;
  std::set<std::uint64_t> dead_, left_behind_;
  bool gives_up_ = false;
};

}  // namespace pliant::session
