// One worker: a child process in its own process group, with files for its output and nothing else of the agent's.
#pragma once

#include <sys/resource.h>

#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/process.h"
#include "base/fd.h"
#include "base/result.h"

namespace pliant::cli {

/// The program's path, looked up like a shell does. Code::not_found, or Code::invalid if it cannot be executed.
Result<std::string> find_program(const std::string& name);

struct SpawnOptions {
  std::string path;
  std::vector<std::string> argv;
  std::vector<std::string> env;
  std::string out;  ///< files for its stdout and stderr, emptied first
  std::string err;
  rlimit files{};  ///< the limit on descriptors that it gets
};

/// Destroying it neither ends nor reaps the process: workers outlive their agent.
class WorkerProcess {
 public:
  /// Returns once the program runs. Code::not_found or Code::invalid if it cannot be executed.
  static Result<WorkerProcess> spawn(const SpawnOptions& options);

  const ProcessId& id() const { return id_; }
  /// Readable once the process has ended.
  int pidfd() const { return pidfd_.get(); }
  bool running() const { return !ending_; }
  const std::optional<Ending>& ending() const { return ending_; }

  /// True if the process has ended since the last call; it is reaped then.
  bool reap();
  /// Signals the process and all that it started in its group. Does nothing once it was reaped: only until then is its
  /// number sure to be its own.
  void signal_group(int signal) const;

 private:
  WorkerProcess(ProcessId id, Fd pidfd) : id_(id), pidfd_(std::move(pidfd)) {}
  ProcessId id_;
  Fd pidfd_;
  std::optional<Ending> ending_;
};

}  // namespace pliant::cli
