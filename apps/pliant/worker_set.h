// A job's workers as processes of this host: starts them or takes them up, copies their output, watches and ends them.
// Threads: lives on its loop's thread.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <functional>
#include <list>
#include <set>
#include <string>
#include <vector>

#include "apps/pliant/console.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/output_tail.h"
#include "apps/pliant/watched_process.h"
#include "apps/pliant/worker_env.h"
#include "base/clock.h"
#include "net/loop.h"

namespace pliant::cli {

struct WorkerSetOptions {
  std::string program;  ///< its path
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< inherited
  WorkerEnv env;
  std::string output_dir;
  OutputMode output = OutputMode::prefix;
};

struct Worker {
  std::uint64_t id = 0;
  WatchedProcess process;
  Nanos started{0};
  std::string out;  ///< where its output goes
  std::string err;
};

class WorkerSet {
 public:
  /// `on_end` is called when some have ended: look with reap().
  WorkerSet(net::Loop& loop, Console& console, WorkerSetOptions options, std::function<void()> on_end);
  ~WorkerSet();
  WorkerSet(const WorkerSet&) = delete;
  WorkerSet& operator=(const WorkerSet&) = delete;

  /// Makes room for `wanted` of them, and for up to `most` where the system allows it.
  Status prepare(std::uint32_t wanted, std::uint32_t most);
  /// The limit on descriptors after prepare().
  const rlimit& files() const { return files_; }

  /// Code::not_found or Code::invalid if the program cannot be executed.
  Result<const Worker*> start(std::uint64_t id);
  /// A worker that another agent has started; its output is copied from now on. False if it is gone.
  Result<bool> take_up(const WorkerRecord& record);

  /// Those that have ended since the last look.
  std::vector<Worker*> reap();
  void signal(int number) const;
  int alive() const;
  const Worker* find(std::uint64_t id) const;
  /// All of them, in the order of their start. References stay valid.
  std::list<Worker>& all() { return workers_; }
  const std::list<Worker>& all() const { return workers_; }
  /// One that has ended is not among them any more. Its files are copied as far as they are written, then closed; what
  /// it left in its group stays among the leftovers.
  void forget(std::uint64_t id);

  /// Copies what the workers have written by now.
  void copy_output();
  /// The same to the last byte. True once nothing is left.
  bool drain_output();
  /// Processes that workers left behind in their groups.
  std::vector<ProcessId> leftovers() const { return members_of(groups_); }

 private:
  Status follow(const Worker& worker, bool from_now);
  void add(Worker worker);

  net::Loop& loop_;
  Console& console_;
  const WorkerSetOptions options_;
  const std::function<void()> on_end_;
  SteadyClock clock_;
  rlimit before_{};  // what workers get
  rlimit files_{};
  struct Followed {
    std::uint64_t worker = 0;
    OutputTail tail;
  };
  std::list<Worker> workers_;
  std::set<Group> groups_;
  std::vector<Followed> tails_;
};

}  // namespace pliant::cli
