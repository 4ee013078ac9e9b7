// A process that is watched to its end: a child in its own process group or session, with files for its output and
// nothing else of the agent's; or one that somebody else started.
#pragma once

#include <sys/resource.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/ending.h"
#include "apps/pliant/process.h"
#include "base/fd.h"
#include "base/result.h"

namespace pliant::cli {

using agent::Ending;

/// The program's path, looked up like a shell does. Code::not_found, or Code::invalid if it cannot be executed.
Result<std::string> find_program(const std::string& name);

struct SpawnOptions {
  std::string path;
  std::vector<std::string> argv;
  std::vector<std::string> env;
  std::string in{};  ///< a file for its stdin; empty: nothing to read
  std::string out;   ///< files for its stdout and stderr
  std::string err;
  rlimit files{};             ///< the limit on descriptors that it gets
  bool append = false;        ///< to the files; else they are emptied first
  bool follow_links = false;  ///< to files that the user has named; others are not opened through a link
  /// Instead of merely its own group. No terminal reaches it; and the end of this process does not end it while it is
  /// stopped: the kernel sends SIGHUP to a stopped group when the last parent in its session ends.
  bool own_session = false;
};

/// Destroying it neither ends nor reaps the process: workers and coordinator outlive their agent.
class WatchedProcess {
 public:
  /// Returns once the program runs. Code::not_found or Code::invalid if it cannot be executed.
  static Result<WatchedProcess> spawn(const SpawnOptions& options);
  /// Watches a process that is not our child: how it ends cannot be known. Code::not_found if it is gone.
  static Result<WatchedProcess> take_up(const ProcessId& process);

  const ProcessId& id() const { return id_; }
  /// Readable once the process has ended.
  int pidfd() const { return pidfd_.get(); }
  bool running() const { return !ending_; }
  const std::optional<Ending>& ending() const { return ending_; }

  /// True if the process has ended since the last call; a child is reaped then.
  bool reap();
  /// Signals the process and all that it started in its group. Does nothing once reap() saw its end: only until then is
  /// its number sure to be its own.
  void signal_group(int signal) const;

 private:
  WatchedProcess(ProcessId id, Fd pidfd, bool child) : id_(id), pidfd_(std::move(pidfd)), child_(child) {}
  ProcessId id_;
  Fd pidfd_;
  bool child_ = true;
  std::optional<Ending> ending_;
};

}  // namespace pliant::cli
