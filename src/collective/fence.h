// How a view ends for one rank: by its fence, or because peers left in good order and what is needed of them is
// missing.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pliant::collective {

/// Is raised once, and says why. What is published together with publish_unless_up() is out before that, or never.
class Fence {
 public:
  bool up() const { return up_.load(std::memory_order_acquire); }
  /// The first reason stands: false if it was up. `mark` tells other processes, before anything more is published here.
  template <class Mark>
  bool raise(Error why, const Mark& mark) {
    std::lock_guard lock(mutex_);
    if (up_.load(std::memory_order_relaxed)) return false;
    reason_ = std::move(why);
    up_.store(true, std::memory_order_release);
    mark();
    return true;
  }
  /// The reason if it is up; then `publish` is not called.
  template <class Publish>
  Status publish_unless_up(const Publish& publish) {
    std::lock_guard lock(mutex_);
    if (up()) return reason_;
    publish();
    return {};
  }
  Error reason() const {
    std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  mutable std::mutex mutex_;
  Error reason_;  // guarded by mutex_
  std::atomic<bool> up_{false};
};

/// Ranks that have left. Read it before their counters: what a rank published before it left is seen then.
class Departures {
 public:
  explicit Departures(std::size_t ranks) : gone_(ranks) {}
  void note(int rank) {
    gone_[rank].store(true, std::memory_order_release);
    any_.store(true, std::memory_order_release);
  }
  bool any() const { return any_.load(std::memory_order_acquire); }
  /// The lowest rank that has left and `lacks` something, or -1.
  template <class Lacks>
  int first_of(const Lacks& lacks) const {
    if (!any()) return -1;
    for (int rank = 0; rank < static_cast<int>(gone_.size()); ++rank)
      if (gone_[rank].load(std::memory_order_acquire) && lacks(rank)) return rank;
    return -1;
  }

 private:
  std::vector<std::atomic<bool>> gone_;  // by rank
  std::atomic<bool> any_{false};
};

}  // namespace pliant::collective
