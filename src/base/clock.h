// Time as a parameter: state machines take a Clock, production passes the steady one.
#pragma once

#include <chrono>

namespace pliant {

using Nanos = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos now() const = 0;
};

/// CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  Nanos now() const override;
};

/// Moves only when told to.
class ManualClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  void advance(Nanos by) { now_ += by; }

 private:
  Nanos now_{0};
};

inline double seconds(Nanos span) { return std::chrono::duration<double>(span).count(); }
/// Since 1970: for people and records, not for waiting.
inline double unix_seconds() { return seconds(std::chrono::system_clock::now().time_since_epoch()); }

}  // namespace pliant
