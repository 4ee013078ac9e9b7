// What the training thread asks of the membership driver in every step, so that it can be answered without a mutex that
// the network's thread holds.
#pragma once

#include <atomic>

namespace pliant::session {

/// Threads: shown by whoever holds the driver's mutex, seen by any.
class StepSigns {
 public:
  void show(bool inside, bool changes, bool plan) {
    inside_.store(inside, std::memory_order_release);
    changes_.store(changes, std::memory_order_release);
    plan_.store(plan, std::memory_order_release);
  }
  /// This worker is in a view.
  bool inside() const { return inside_.load(std::memory_order_acquire); }
  /// The view has ended, or is about to.
  bool changes() const { return changes_.load(std::memory_order_acquire); }
  /// There is a plan: it is worth asking for.
  bool plan() const { return plan_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> inside_{false}, changes_{false}, plan_{false};
};

}  // namespace pliant::session
