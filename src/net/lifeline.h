// Lifelines: how the processes of a host learn of each other's death while the kernel is still busy with it.
//
// A process that is killed loses its memory first, which takes tens of milliseconds if it has much; only then are its
// sockets closed and its pidfd ready. But before any of that the kernel looks after the futexes that its threads hold
// (set_robust_list(2)): it marks them and wakes who sleeps on them. So each process has a thread that holds one, in
// memory that the others can read, and sleeps on theirs.
//
// The mark alone proves nothing: it says that one thread has ended. The proof is asked of the kernel: every thread of
// the process is exiting, and so none will ever run again.
//
// The same memory holds a number that its owner may set. It outlives the owner for as long as it is watched, so that
// others can read what a process said last, however suddenly it died. And it holds the owner's pulse (pulse.h): a
// second thread counts there and does nothing else, so that the others see whether the process runs.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "net/pulse.h"
#include "net/shared_memory.h"

namespace pliant::net {

/// Will no thread of this process run any more, ever? False also if nobody can tell. The caller holds a pidfd, so that
/// the number cannot be another's.
bool is_exiting(pid_t pid);

class Lifeline {
 public:
  /// Called on a thread of its own.
  struct Events {
    std::function<void(std::uint64_t id)> on_death;         ///< once
    std::function<void(std::uint64_t id)> on_standstill{};  ///< it lives and does not run; now and then, while it is so
  };
  static Result<std::unique_ptr<Lifeline>> create(Events events);
  /// After this nothing is called any more. Whoever watches this one sees nothing special.
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  /// For those who want to watch this process: what watch() takes.
  int descriptor() const { return own_.fd.get(); }
  /// Watches process `pid`, whose lifeline `line` is. Of an id that is watched already, the new one counts.
  Status watch(std::uint64_t id, pid_t pid, const Fd& line);
  void unwatch(std::uint64_t id);

  /// Sets this process's number, for those who watch it. Whatever its threads do after this call, a watcher that has
  /// proof of its death reads this number or a later one. Any thread.
  void note(std::uint64_t number);
  /// The number that `id` has set last, also after its death, until unwatch(). 0 if there is none, or if it is not
  /// watched. Any thread.
  std::uint64_t noted_by(std::uint64_t id) const;

 private:
  struct Line;
  struct Watched {
    pid_t pid = 0;
    std::shared_ptr<Mapping> memory{};  // shared: with the thread, while it sleeps on it
    std::uint32_t seen = 0;             // as long as it lives
    int looks = 0;                      // for a proof, since it is marked
    bool told = false;                  // its death; the memory stays, to be read
    Pulse pulse{};
    int quiet_looks = 0;  // until its standstill may be told again
  };
  Lifeline(OwnSegment own, Events events) : own_(std::move(own)), events_(std::move(events)) {}
  static Line& line_in(const Mapping& memory);
  void nudge();
  void run();
  void hold();
  void let_go();
  void beat(std::promise<void>& begun);
  std::vector<std::uint64_t> standing_still();

  OwnSegment own_;
  const Events events_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Watched> watched_;  // guarded by mutex_
  std::atomic<std::uint32_t> bell_{0};        // what the thread sleeps on, besides lines
  std::atomic<bool> stopping_{false};
  std::thread thread_, beating_;
};

}  // namespace pliant::net
