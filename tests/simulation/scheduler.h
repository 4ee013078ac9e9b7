// Simulated time: events in the order of their time, and of equals in the order in which they were asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"

namespace pliant::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// The same numbers from the same seed on every machine.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(mix64(seed)) {}
  std::uint64_t below(std::uint64_t bound) { return mix64(++state_) % bound; }
  bool chance(unsigned percent) { return below(100) < percent; }
  Nanos between(Nanos low, Nanos high) {
    return low + Nanos(below(static_cast<std::uint64_t>((high - low).count()) + 1));
  }

 private:
  std::uint64_t state_;
};

class Scheduler final : public Clock {
 public:
  explicit Scheduler(std::uint64_t seed) : rng_(seed) {}
  Nanos now() const override { return now_; }
  Rng& rng() { return rng_; }
  void after(Nanos delay, std::function<void()> action) { queue_.push({now_ + delay, order_++, std::move(action)}); }
  /// Runs the next event; false if there is none.
  bool step() {
    if (queue_.empty()) return false;
    auto event = std::move(const_cast<Event&>(queue_.top()));
    queue_.pop();
    now_ = event.at;
    ++events_;
    event.action();
    return true;
  }
  std::uint64_t events() const { return events_; }

 private:
  struct Event {
    Nanos at{0};
    std::uint64_t order = 0;
    std::function<void()> action;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  Rng rng_;
  Nanos now_{std::chrono::hours(1)};  // some code takes 0 for "never"
  std::uint64_t order_ = 0, events_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
};

}  // namespace pliant::sim
