// The agent: the `pliant run` process. Starts the workers, serves as coordinator, copies output, watches and ends.
//
//   phase     event                   to        action
//   running   a worker exits with 0   running   -
//   running   a worker fails          ending    give the others a second to end by themselves
//   running   INT, TERM or HUP        stopping  SIGTERM to all, SIGKILL after the grace time
//   ending    the second is over      ending    report; SIGTERM to the rest, SIGKILL after the grace time
//   any       another signal, QUIT    same      SIGKILL to all
//   any       the last worker ended   settling  report what failed; end what the workers left in their groups
//   settling  all output is copied    -         leave the loop
//
// Nothing a worker needs is the agent's: if the agent is killed, the workers go on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/blame.h"
#include "apps/pliant/console.h"
#include "apps/pliant/coordinator_server.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/output_tail.h"
#include "apps/pliant/run.h"
#include "apps/pliant/status_line.h"
#include "apps/pliant/status_reporter.h"
#include "apps/pliant/worker_env.h"
#include "apps/pliant/worker_process.h"
#include "base/clock.h"
#include "net/loop.h"

namespace pliant::cli {

class Agent {
 public:
  /// `record` names the job and its program; `dir` is its directory.
  Agent(RunOptions options, JobRecord record, JobDir dir);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Runs the job to its end. Blocks the process's signals for good. Returns the exit status.
  int run();

 private:
  enum class Phase { running, ending, stopping, settling };
  struct Worker {
    WorkerProcess process;
    Nanos started{0};
  };

  Status start();
  Status start_coordinator();
  Status start_workers();
  Status start_worker(int rank, const SpawnOptions& common, const WorkerEnv& env);
  Status watch_signals();
  int abandon(const Error& error);
  std::optional<int> worker_of(pid_t pid) const;
  void tick();

  void reap();
  void on_death(int rank);
  void on_signal(int number);
  void on_progress(int rank, const wire::Progress& progress);
  void on_complaint(int rank, const wire::Complaint& complaint);

  void end_workers();
  void kill_workers();
  void report_failure();
  void begin_settling();
  void settle();
  bool leftovers_gone();
  bool output_copied();

  int alive() const;
  Snapshot snapshot() const;
  void say(const std::string& lines);

  RunOptions options_;
  JobRecord record_;
  JobDir dir_;
  SteadyClock clock_;
  Nanos started_;
  net::Loop loop_;
  Console console_;
  StatusReporter reporter_;
  Fd signals_;
  std::string address_;  // the coordinator's
  std::vector<Worker> workers_;
  std::vector<OutputTail> tails_;
  std::optional<CoordinatorServer> server_;

  Phase phase_ = Phase::running;
  int turn_ = 0;
  std::vector<Death> deaths_;
  std::vector<Accusation> accusations_;
  int interrupted_ = 0;  // the first signal
  bool reported_ = false;
  int exit_status_ = 0;
  std::optional<Nanos> end_at_;    // when to send SIGTERM
  std::optional<Nanos> kill_at_;   // when to send SIGKILL
  std::optional<Nanos> leave_at_;  // when to stop waiting for whoever reads our output
  bool leftovers_gone_ = false;
  Nanos next_scan_{0};

  Pace pace_;
  std::optional<wire::Progress> progress_;
  int progress_rank_ = 0;
  Nanos progress_at_{0};
};

}  // namespace pliant::cli
