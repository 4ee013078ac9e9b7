// Which process of this host is which worker's, by the agent's word, and whether it still runs, by the kernel's.
//
// Two processes may count for one worker: the one that its agent has started, and the one that has joined, which the
// first may have started. Who belongs to a worker is asked of the first, whether it lives of the second.
//
// Threads: lives on its loop's thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "base/fd.h"
#include "net/loop.h"

namespace pliant::cli {

class WorkerProcesses {
 public:
  /// `on_gone` is called once for each that was watched and has ended; never before the call that watches it returns.
  WorkerProcesses(net::Loop& loop, std::function<void(std::uint64_t id)> on_gone)
      : loop_(loop), on_gone_(std::move(on_gone)) {}
  ~WorkerProcesses();
  WorkerProcesses(const WorkerProcesses&) = delete;
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;

  /// As known from before: what the agent says counts more.
  void know(std::uint64_t id, pid_t pid);
  /// The agent has started it. Workers whose processes are all gone are forgotten.
  void started(std::uint64_t id, pid_t pid);
  /// This process has joined as the worker: from now on it is the one that is watched.
  void watch(std::uint64_t id, pid_t pid);

  /// The worker whose process this is, or has started this one.
  std::optional<std::uint64_t> owner_of(pid_t pid) const;
  bool knows(std::uint64_t id) const { return processes_.contains(id); }
  bool any_runs() const { return !watched_.empty(); }

 private:
  struct Watch {
    pid_t pid = 0;
    Fd pidfd;
  };
  void gone(std::uint64_t id);

  net::Loop& loop_;
  const std::function<void(std::uint64_t id)> on_gone_;
  std::map<std::uint64_t, pid_t> processes_;  // as the agent started them; by id
  std::map<std::uint64_t, Watch> watched_;    // by id
};

}  // namespace pliant::cli
