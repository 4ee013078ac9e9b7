// A function with a stack of its own, which runs until it yields: how a simulated worker's program waits.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace pliant::sim {

/// Threads: made, resumed and destroyed on one thread.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  /// REQUIRES: finished, or never resumed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs it until it yields or ends. Not from within a fiber.
  void resume();
  /// Inside a fiber: back to whoever resumed it.
  static void yield();
  bool finished() const { return finished_; }

 private:
  /// What the C++ runtime keeps per thread of exceptions in flight: every fiber has its own.
  struct Exceptions {
    void* caught = nullptr;
    unsigned int uncaught = 0;
  };
  static void enter();
  void swap_exceptions();
  void switch_in();
  void switch_out(bool for_good);

  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  ucontext_t own_{}, outside_{};
  Exceptions exceptions_;
  bool started_ = false, finished_ = false;
  void* sanitizer_own_ = nullptr;  // AddressSanitizer's fake stack, or ThreadSanitizer's fiber
  void* sanitizer_outside_ = nullptr;
  const void* outside_stack_ = nullptr;
  std::size_t outside_size_ = 0;
};

}  // namespace pliant::sim
