// The workers that a coordinator has forgotten: of each it is known that it has ended, and of all together which views
// they had been in.
#pragma once

#include <algorithm>
#include <cstdint>

#include "membership/coordinator_files.h"
#include "membership/id_set.h"

namespace pliant::membership {

class Former {
 public:
  void add(std::uint64_t id, const WorkerFile& worker) {
    ids_.add(id);
    last_view_ = std::max(last_view_, worker.last_view);
    trained_in_ = std::max(trained_in_, worker.trained_in);
  }
  bool contains(std::uint64_t id) const { return ids_.contains(id); }
  /// The epoch of the newest view that one of them was in when it ended.
  std::uint64_t last_view() const { return last_view_; }
  /// The epoch of the newest view in which one of them has reported a step.
  std::uint64_t trained_in() const { return trained_in_; }

 private:
  IdSet ids_;
  std::uint64_t last_view_ = 0, trained_in_ = 0;
};

}  // namespace pliant::membership
