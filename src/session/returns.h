// How long a worker that was left behind waits before it asks to be taken in again: not at all the first time, then
// twice as long each time, because every return costs the others a change of view; until it has stayed for a while.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace pliant::session {

class Returns {
 public:
  static constexpr Nanos kStayed = std::chrono::seconds(30);
  static constexpr Nanos kFirst = std::chrono::milliseconds(500), kLongest = std::chrono::seconds(8);

  /// It is left behind now; the pause before it asks.
  Nanos next(Nanos now) {
    if (now - last_ > kStayed) pause_ = Nanos(0);
    last_ = now;
    auto pause = pause_;
    pause_ = std::clamp(2 * pause_, kFirst, kLongest);
    return pause;
  }

 private:
  Nanos pause_{0}, last_{0};
};

}  // namespace pliant::session
