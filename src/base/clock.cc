#include "base/clock.h"

#include <ctime>

namespace pliant {

Nanos SteadyClock::now() const {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  return std::chrono::seconds(at.tv_sec) + Nanos(at.tv_nsec);
}

}  // namespace pliant
