// The workers that a coordinator has forgotten: of each it is known that it has ended, and nothing else. Ids are given
// one after the other and never twice, so a few ranges hold them all, however many there were.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

#include "membership/coordinator_files.h"

namespace pliant::membership {

class Former {
 public:
  void add(std::uint64_t id, const WorkerFile& worker) {
    last_view_ = std::max(last_view_, worker.last_view);
    trained_in_ = std::max(trained_in_, worker.trained_in);
    if (contains(id)) return;
    auto after = ranges_.find(id + 1);
    auto end = after == ranges_.end() ? id + 1 : after->second;
    if (after != ranges_.end()) ranges_.erase(after);
    auto before = range_up_to(id);
    if (before != ranges_.end() && before->second == id)
      before->second = end;
    else
      ranges_.emplace(id, end);
  }
  bool contains(std::uint64_t id) const {
    auto range = range_up_to(id);
    return range != ranges_.end() && id < range->second;
  }
  /// The epoch of the newest view that one of them was in when it ended.
  std::uint64_t last_view() const { return last_view_; }
  /// The epoch of the newest view in which one of them has reported a step.
  std::uint64_t trained_in() const { return trained_in_; }
  std::size_t ranges() const { return ranges_.size(); }

 private:
  using Ranges = std::map<std::uint64_t, std::uint64_t>;
  Ranges::const_iterator range_up_to(std::uint64_t id) const {
    auto next = ranges_.upper_bound(id);
    return next == ranges_.begin() ? ranges_.end() : std::prev(next);
  }
  Ranges::iterator range_up_to(std::uint64_t id) {
    auto next = ranges_.upper_bound(id);
    return next == ranges_.begin() ? ranges_.end() : std::prev(next);
  }

  Ranges ranges_;  // where one begins, and where it ends
  std::uint64_t last_view_ = 0, trained_in_ = 0;
};

}  // namespace pliant::membership
