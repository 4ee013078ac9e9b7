// Waiting that adapts. On a free core a short spin is fastest; with more runnable threads than cores, giving the core
// away is; and when strangers use the cores, only a real sleep gets it back soon, because the kernel favours those
// who slept over those who burnt their share.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace pliant::collective {

/// What the waits of one process have learned about the machine. Shared by its threads.
class Crowding {
 public:
  /// `crowded`: more threads of our own wait actively on this host than it has cores.
  explicit Crowding(bool crowded) : crowded_(crowded) {}
  bool crowded() const { return crowded_; }
  bool strangers() const { return strangers_.load(std::memory_order_relaxed) > 0; }
  /// Remembered for a number of waits that doubles each time it happens again.
  void saw_strangers() {
    auto memory = memory_.load(std::memory_order_relaxed);
    strangers_.store(memory, std::memory_order_relaxed);
    memory_.store(memory < kLongest ? 2 * memory : memory, std::memory_order_relaxed);
  }
  /// One wait is over: the memory fades, so that quiet machines are spun on again.
  void fade() {
    auto left = strangers_.load(std::memory_order_relaxed);
    auto memory = memory_.load(std::memory_order_relaxed);
    if (left > 0)
      strangers_.store(left - 1, std::memory_order_relaxed);
    else if (memory > kShortest)
      memory_.store(memory - 1, std::memory_order_relaxed);
  }

 private:
  static constexpr int kShortest = 64;
  static constexpr int kLongest = 4096;
  const bool crowded_;
  std::atomic<int> strangers_{0};  // waits for which strangers are still remembered
  std::atomic<int> memory_{kShortest};
};

/// One wait. pause() gives up the CPU for a moment, in the way that suits; false says: sleep, until something moves.
class Waiter {
 public:
  explicit Waiter(Crowding& crowding) : crowding_(crowding) {}
  ~Waiter() { crowding_.fade(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  bool pause();
  /// Something moved: patience starts anew.
  void progressed();

 private:
  Crowding& crowding_;
  SteadyClock clock_;
  Nanos began_{0};
  Nanos last_{0};
  std::uint32_t turns_ = 0;
  bool exhausted_ = false;
};

}  // namespace pliant::collective
