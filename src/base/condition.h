// Waiting as a parameter: production waits on a condition variable, a simulation lets its scheduler run.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/clock.h"

namespace pliant {

class Condition {
 public:
  virtual ~Condition() = default;
  /// Releases the lock, sleeps until somebody notifies (or for no reason), and takes the lock again.
  virtual void wait(std::unique_lock<std::mutex>& lock) = 0;
  /// The same for at most `span`.
  virtual void wait_for(std::unique_lock<std::mutex>& lock, Nanos span) = 0;
  virtual void notify_all() = 0;

  template <class Done>
  void await(std::unique_lock<std::mutex>& lock, const Done& done) {
    while (!done()) wait(lock);
  }
  /// False: the time has passed, and `done` is not true.
  template <class Done>
  bool await_for(std::unique_lock<std::mutex>& lock, const Clock& clock, Nanos span, const Done& done) {
    const auto until = clock.now() + span;
    for (auto now = clock.now(); !done(); now = clock.now()) {
      if (now >= until) return false;
      wait_for(lock, until - now);
    }
    return true;
  }
};

class ThreadCondition final : public Condition {
 public:
  void wait(std::unique_lock<std::mutex>& lock) override { variable_.wait(lock); }
  void wait_for(std::unique_lock<std::mutex>& lock, Nanos span) override { variable_.wait_for(lock, span); }
  void notify_all() override { variable_.notify_all(); }

 private:
  std::condition_variable variable_;
};

}  // namespace pliant
