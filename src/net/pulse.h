// Whether a process that lives runs at all. One that is stopped (SIGSTOP), frozen or swapped out looks like one that is
// busy to those who wait for it; so every process has a thread that does nothing but count, and those who see the count
// stand still ask the kernel why: a thread that is ready to run is starved, and is waited for.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/clock.h"

namespace pliant::net {

/// What the kernel says of a thread.
struct TaskState {
  char state = '?';        ///< as in /proc/PID/stat
  std::uint64_t runs = 0;  ///< how often it was given a core
};
/// Nothing if the thread is gone, or nobody can tell.
std::optional<TaskState> task_state(pid_t pid, pid_t thread);

/// Somebody else's pulse. Looks count, not time: a watcher that was not running either has seen nothing.
class Pulse {
 public:
  static constexpr Nanos kBeat = std::chrono::milliseconds(50);
  /// A thread that is stopped is so by the kernel's word; one that sleeps might have been about to wake.
  static constexpr int kLooksIfStopped = 2, kLooksIfAsleep = 5;

  /// To be called about once a beat. True if the process does not run: its count stands still, and its thread is
  /// stopped, or sleeps on past its time without having had a core.
  bool stands_still(std::uint64_t beats, const std::function<std::optional<TaskState>()>& ask);
  /// The same of a process that has no count yet, by what the kernel says of its first thread: true if that is stopped,
  /// and has not had a core since the look before. One that sleeps may have its reasons.
  bool is_stopped(const std::optional<TaskState>& task);

 private:
  std::uint64_t seen_ = 0;
  int looks_ = 0;  // without another beat
  std::optional<std::uint64_t> runs_;
};

}  // namespace pliant::net
