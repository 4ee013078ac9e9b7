// An event loop: one thread calls run(); everything registered runs there, one callback at a time.
//
// Threads: only post() and stop() may be called from other threads. Callbacks may add and remove anything,
// themselves included. Destroying a loop releases; nothing is called.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace pliant::net {

class Loop {
 public:
  using Callback = std::function<void()>;
  using Timer = std::uint64_t;

  Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Calls `ready` whenever `fd` is readable or hung up. The caller keeps the descriptor and unwatches before closing.
  void watch(int fd, Callback ready);
  void unwatch(int fd);

  /// Calls `due` every `period`, first after one period.
  Timer every(std::chrono::milliseconds period, Callback due);
  void cancel(Timer timer);

  /// Runs `task` on the loop's thread, soon.
  void post(Callback task);
  /// Makes run() return after the callback in progress.
  void stop();
  /// Runs until stop().
  void run();

 private:
  struct Due {
    Nanos at;
    std::chrono::milliseconds period;
    std::shared_ptr<Callback> call;
  };
  int until_next_timer() const;
  void run_timers();
  void run_posted();

  SteadyClock clock_;
  Fd epoll_;
  Fd wake_;
  std::map<int, std::shared_ptr<Callback>> watched_;  // shared: a callback may unwatch itself while it runs
  std::map<Timer, Due> timers_;
  Timer next_timer_ = 1;

  std::mutex mutex_;
  std::vector<Callback> posted_;  // guarded by mutex_
  bool stopping_ = false;         // guarded by mutex_
};

}  // namespace pliant::net
