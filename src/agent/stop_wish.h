// That a job shall end, as whoever runs it tells the coordinator: once, with more force if more is asked for later, and
// again to each coordinator that comes, because the one before may not have heard it. Pure: no clock, no socket.
#pragma once

#include <algorithm>
#include <optional>

#include "wire/messages.h"

namespace pliant::agent {

class StopWish {
 public:
  void ask(wire::Stopping how) { asked_ = std::max(asked_, how); }
  wire::Stopping asked() const { return asked_; }
  /// What the coordinator has not been told yet.
  std::optional<wire::Stop> untold() const {
    return asked_ > told_ ? std::optional(wire::stop_of(asked_)) : std::nullopt;
  }
  void told() { told_ = asked_; }
  /// There is another coordinator.
  void tell_again() { told_ = wire::Stopping::no; }

 private:
  wire::Stopping asked_ = wire::Stopping::no;
  wire::Stopping told_ = wire::Stopping::no;
};

}  // namespace pliant::agent
