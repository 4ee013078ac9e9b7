#include "base/fault.h"

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "base/system.h"

namespace pliant::fault {
namespace {

std::atomic<std::uint64_t> worker{0};
std::atomic<std::uint64_t> step{0};
std::function<void(const char*)> interceptor;

/// The orders are few and short: looked up anew each time.
bool ordered(std::string_view orders, const std::string& wanted) {
  while (!orders.empty()) {
    auto end = orders.find(';');
    if (orders.substr(0, end) == wanted) return true;
    orders = end == std::string_view::npos ? std::string_view() : orders.substr(end + 1);
  }
  return false;
}

std::string prefix() { return std::to_string(worker.load()) + "@" + std::to_string(step.load()) + ":"; }

}  // namespace

namespace internal {

std::atomic<bool> armed{false};

void reached(const char* point) {
  if (interceptor) return interceptor(point);
  auto orders = env("PLIANT_FAULT");
  if (orders && ordered(*orders, prefix() + point)) raise(SIGKILL);
}

}  // namespace internal

void intercept(std::function<void(const char*)> handler) {
  interceptor = std::move(handler);
  internal::armed = interceptor != nullptr;
}

void position(std::uint64_t new_worker, std::uint64_t new_step) {
  static const bool wanted = env("PLIANT_FAULT").has_value();
  if (!wanted) return;
  worker = new_worker;
  step = new_step;
  // Armed only in steps that something is ordered for: elsewhere points stay cheap.
  auto orders = *env("PLIANT_FAULT");
  internal::armed = orders.find(prefix()) != std::string::npos;
}

}  // namespace pliant::fault
