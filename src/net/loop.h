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

  /// Calls `readable` whenever `fd` can be read or is hung up, and `writable` whenever it can be written, but that only
  /// while want_writable() says so: most descriptors can always be written. The caller keeps the descriptor and
  /// unwatches before closing.
  void watch(int fd, Callback readable, Callback writable = {});
  /// Off at first, and after another watch(). REQUIRES: `fd` is watched; to switch it on, with a `writable`.
  void want_writable(int fd, bool wanted);
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
  struct Watched {
    std::uint32_t number = 0;  // tells events of this watch from those of an earlier one of the same descriptor
    bool wants_writable = false;
    std::shared_ptr<Callback> readable, writable;  // shared: a callback may unwatch itself while it runs
  };
  void tell_epoll(int operation, int fd, const Watched& watched);
  Watched* find(std::uint64_t key);
  void dispatch(std::uint64_t key, std::uint32_t events);
  int until_next_timer() const;
  void run_timers();
  void run_posted();

  SteadyClock clock_;
  Fd epoll_;
  Fd wake_;
  std::map<int, Watched> watched_;
  std::uint32_t next_watch_ = 0;
  std::map<Timer, Due> timers_;
  Timer next_timer_ = 1;

  std::mutex mutex_;
  std::vector<Callback> posted_;  // guarded by mutex_
  bool stopping_ = false;         // guarded by mutex_
};

}  // namespace pliant::net
