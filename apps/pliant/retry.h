// When something that has failed is tried again, and whether people were told. Pauses double, up to a limit.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace pliant::cli {

class Retry {
 public:
  static constexpr Nanos kLongestPause = std::chrono::seconds(60);  ///< between attempts

  /// It failed.
  void later(Nanos now) {
    pause_ = std::clamp<Nanos>(pause_ * 2, std::chrono::seconds(1), kLongestPause);
    at_ = now + pause_;
  }
  /// It worked: what was before is forgotten.
  void good() { *this = {}; }
  bool failed() const { return pause_ > Nanos(0); }
  bool waits(Nanos now) const { return now < at_; }
  /// True once, until it has worked again.
  bool is_to_be_said() { return !std::exchange(said_, true); }

 private:
  Nanos pause_{0};
  Nanos at_{0};
  bool said_ = false;
};

}  // namespace pliant::cli
