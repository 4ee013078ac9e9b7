// Faults on order: a process that was told so kills itself at a named point, as a real kill -9 would at the worst
// moment. For tests and benchmarks; without PLIANT_FAULT in the environment a fault point costs one load.
//
//   PLIANT_FAULT="2@50:between_buckets;0@80:mid_slice"     worker 2 in step 50, worker 0 in step 80
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace pliant::fault {

namespace internal {
extern std::atomic<bool> armed;
void reached(const char* point);
}  // namespace internal

/// Where this process is: its worker's number and step. The environment is read on the first call.
void position(std::uint64_t worker, std::uint64_t step);

/// For tests, whose workers are threads: from now on `handler` is called at every point, and may throw. Empty: as
/// usual. While no worker runs.
void intercept(std::function<void(const char* point)> handler);

/// Ends the process by SIGKILL if that was ordered for this point of the current step.
inline void point(const char* name) {
  if (internal::armed.load(std::memory_order_relaxed)) internal::reached(name);
}

}  // namespace pliant::fault
