// The agent: the `pliant run` process. Keeps a coordinator alive, starts the workers it asks for, copies output,
// watches and ends. What it does about workers and why is agent/supervision.h; here are the processes, files and
// sockets, and what people see.
//
//   settling  the job is judged                   -         end what the workers left in their groups
//   settling  all output is copied                -         end the coordinator
//
// Nothing a worker or the coordinator needs is the agent's: if it is killed, they go on, and another one may take up
// the job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/event_log.h"
#include "agent/supervision.h"
#include "apps/pliant/console.h"
#include "apps/pliant/coordinator_keeper.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/job_news.h"
#include "apps/pliant/own_record.h"
#include "apps/pliant/run.h"
#include "apps/pliant/signals.h"
#include "apps/pliant/slot_supply.h"
#include "apps/pliant/status_line.h"
#include "apps/pliant/status_reporter.h"
#include "apps/pliant/worker_set.h"
#include "base/clock.h"
#include "net/loop.h"
#include "session/worker_note.h"

namespace pliant::cli {

/// How the agent of a host introduces itself to the coordinator.
net::Credentials agent_credentials(const std::string& job, const net::Secret& secret);

class Agent final : private agent::Driver {
 public:
  /// `record` names the job and its program; `dir` is its directory. Workers that run already are taken up.
  /// `environment` is what new ones inherit.
  Agent(const RunOptions& options, JobRecord record, JobDir dir, std::vector<std::string> environment);
  ~Agent() override;
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Runs the job to its end. Blocks the process's signals for good. Returns the exit status.
  int run();

 private:
  // agent_start.cc: up to the moment when the loop runs.
  Status start();
  void keep_coordinator();
  SlotEvents slot_events();
  void on_slots();
  int abandon(const Error& error);
  int let_go(const Error& error);

  // For the supervision.
  Result<pid_t> start(std::uint64_t id) override;
  void signal(std::uint64_t id, int number) override;
  bool send(const wire::Message& message) override;
  std::optional<Nanos> missed_for() const override;
  void drain() override;
  session::WorkerNote note_of(std::uint64_t id) const override;
  void note_told(std::uint64_t id) override;
  void forget(std::uint64_t id) override;
  std::string last_words(std::uint64_t id) override;
  void say(const std::string& lines) override;
  void note(const std::string& what, std::uint64_t worker, const std::string& text) override;

  void on_message(const wire::Message& message);
  void tick();
  void reap();
  void settle();
  bool leftovers_gone();
  bool output_copied();
  Snapshot snapshot() const;

  const JobRecord& record() const { return job_.get(); }

  const RunOptions options_;
  OwnRecord job_;
  SteadyClock clock_;
  Nanos started_;
  net::Loop loop_;
  Console console_;
  StatusReporter reporter_;
  SignalWatch signals_;
  WorkerSet workers_;
  std::optional<CoordinatorKeeper> keeper_;
  agent::EventLog events_;
  SlotSupply supply_;
  JobNews news_;
  agent::Supervision supervision_;
  bool leftovers_gone_ = false;
  Nanos next_scan_{0};
};

}  // namespace pliant::cli
