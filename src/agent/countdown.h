// How patience ends: processes are told to end, later they are killed, and at last nobody waits for what they have
// written to be read. Each has its time, which may be set, or be called off, by itself.
#pragma once

#include <optional>

#include "base/clock.h"

namespace pliant::agent {

class Countdown {
 public:
  void end_at(Nanos time) { end_at_ = time; }
  void call_off_end() { end_at_.reset(); }
  bool ends() const { return end_at_.has_value(); }
  bool end_due(Nanos now) const { return due(end_at_, now); }

  /// They were told to end.
  void kill_at(Nanos time) { kill_at_ = time; }
  bool told() const { return kill_at_.has_value(); }
  bool kill_due(Nanos now) const { return due(kill_at_, now); }

  void leave_at(Nanos time) { leave_at_ = time; }
  bool leave_due(Nanos now) const { return due(leave_at_, now); }

 private:
  static bool due(const std::optional<Nanos>& time, Nanos now) { return time && now >= *time; }

  std::optional<Nanos> end_at_;
  std::optional<Nanos> kill_at_;
  std::optional<Nanos> leave_at_;
};

}  // namespace pliant::agent
