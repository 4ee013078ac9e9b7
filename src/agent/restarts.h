// When a coordinator that died is started again. Nobody who trains depends on it: after five deaths within
// kTimeOfDeaths the next ones are started later and later. Only if none has ever answered the fifth is too many, and of
// those that ended by themselves in a row the fifth is named. Pure: no clock, no process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "base/clock.h"

namespace pliant::agent {

class Restarts {
 public:
  static constexpr Nanos kTimeOfDeaths = std::chrono::seconds(10);
  static constexpr Nanos kFirstPause = std::chrono::milliseconds(100);
  static constexpr Nanos kLongestPause = std::chrono::seconds(2);
  static constexpr std::size_t kDeaths = 5;

  /// What a death means beyond another start.
  enum class Meaning {
    nothing,
    trouble,   ///< it ends by itself again and again: somebody should know
    hopeless,  ///< there will be none
  };

  void on_answer() { answered_ = true; }
  /// Whoever kills it says nothing about the job: `by_itself` is for those that failed.
  Meaning on_death(Nanos now, bool by_itself) {
    deaths_.push_back(now);
    while (now - deaths_.front() > kTimeOfDeaths) deaths_.pop_front();
    failures_ = by_itself ? failures_ + 1 : 0;
    if (deaths_.size() < kDeaths) return Meaning::nothing;
    if (!answered_) return Meaning::hopeless;
    auto doublings = std::min<std::size_t>(deaths_.size() - kDeaths, 8);
    start_at_ = now + std::min(kLongestPause, kFirstPause * (1 << doublings));
    return failures_ == kDeaths ? Meaning::trouble : Meaning::nothing;
  }
  bool may_start(Nanos now) const { return now >= start_at_; }

 private:
  std::deque<Nanos> deaths_;
  std::size_t failures_ = 0;  // in a row, by their own fault
  Nanos start_at_{0};         // not before
  bool answered_ = false;     // at least once
};

}  // namespace pliant::agent
