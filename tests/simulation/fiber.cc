#include "simulation/fiber.h"

#include <cxxabi.h>

#include <cstdlib>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace pliant::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStack = 1 << 20;
#else
constexpr std::size_t kStack = 256 << 10;
#endif

thread_local Fiber* running = nullptr;

/// Stacks are used again: to make them costs more than to run on them.
std::vector<std::unique_ptr<std::byte[]>>& idle_stacks() {
  thread_local std::vector<std::unique_ptr<std::byte[]>> stacks;
  return stacks;
}

std::unique_ptr<std::byte[]> take_stack() {
  auto& idle = idle_stacks();
  if (idle.empty()) return std::unique_ptr<std::byte[]>(new std::byte[kStack]);
  auto stack = std::move(idle.back());
  idle.pop_back();
  return stack;
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(take_stack()) {
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_.get();
  own_.uc_stack.ss_size = kStack;
  own_.uc_link = nullptr;
  makecontext(&own_, &Fiber::enter, 0);
#if defined(__SANITIZE_THREAD__)
  sanitizer_own_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (started_ && !finished_) std::abort();  // what lives on its stack would never be destroyed
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(sanitizer_own_);
#endif
  idle_stacks().push_back(std::move(stack_));
}

void Fiber::swap_exceptions() {
  auto& now = *reinterpret_cast<Exceptions*>(abi::__cxa_get_globals());
  std::swap(now, exceptions_);
}

void Fiber::resume() {
  started_ = true;
  auto* before = std::exchange(running, this);
  swap_exceptions();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&sanitizer_outside_, stack_.get(), kStack);
#elif defined(__SANITIZE_THREAD__)
  sanitizer_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizer_own_, 0);
#endif
  swapcontext(&outside_, &own_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_outside_, nullptr, nullptr);
#endif
  swap_exceptions();
  running = before;
}

void Fiber::switch_in() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_own_, &outside_stack_, &outside_size_);
#endif
}

void Fiber::switch_out([[maybe_unused]] bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &sanitizer_own_, outside_stack_, outside_size_);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(sanitizer_outside_, 0);
#endif
  swapcontext(&own_, &outside_);
}

void Fiber::yield() {
  auto* self = running;
  self->switch_out(false);
  self->switch_in();
}

void Fiber::enter() {
  auto* self = running;
  self->switch_in();
  self->body_();
  self->body_ = nullptr;
  self->finished_ = true;
  self->switch_out(true);
}

}  // namespace pliant::sim
