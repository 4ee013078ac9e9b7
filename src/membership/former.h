// The workers that a coordinator has forgotten: of each it is known that it has ended, and of all together which views
// they had been in. Of those who have ended and are still known, from when on no view can name them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "membership/coordinator_files.h"
#include "membership/id_set.h"

namespace pliant::membership {

class Former {
 public:
  /// It has ended. No plan with an epoch above this one can name it.
  void expect(std::uint64_t id, std::uint64_t plans_until) { expected_.try_emplace(id, plans_until); }
  void expect_no_more(std::uint64_t id) { expected_.erase(id); }
  /// A view that is in force came from a plan with the epoch `planned`.
  bool is_behind(std::uint64_t id, std::uint64_t planned) const {
    auto at = expected_.find(id);
    return at == expected_.end() || planned > at->second;
  }

  void add(std::uint64_t id, const WorkerFile& worker) {
    expect_no_more(id);
    ids_.add(id);
    last_view_ = std::max(last_view_, worker.last_view.epoch);
    trained_in_ = std::max(trained_in_, worker.trained_in);
  }
  bool contains(std::uint64_t id) const { return ids_.contains(id); }
  /// The epoch of the newest view that one of them was in when it ended.
  std::uint64_t last_view() const { return last_view_; }
  /// The epoch of the newest view in which one of them has reported a step.
  std::uint64_t trained_in() const { return trained_in_; }

 private:
  std::map<std::uint64_t, std::uint64_t> expected_;
  IdSet ids_;
  std::uint64_t last_view_ = 0, trained_in_ = 0;
};

}  // namespace pliant::membership
