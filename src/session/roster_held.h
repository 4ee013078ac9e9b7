// The membership driver's mutex, held: for the parts of Roster.
#pragma once

#include <mutex>

#include "session/roster.h"

namespace pliant::session {

class Roster::Held {
 public:
  explicit Held(Roster& roster) : roster_(roster), lock_(roster.mutex_) {}
  ~Held() { roster_.show(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  Roster& roster_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace pliant::session
