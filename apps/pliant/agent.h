// The agent: the `pliant run` process. Keeps a coordinator alive, starts the workers it asks for, copies output,
// watches and ends.
//
// The agent of one host of several (`pliant run --join`) does the same, but for the coordinator, which is elsewhere: it
// is in reach or not. Such an agent stays when it has no workers, since more may be asked for, until the coordinator
// says that the job is over, or is not there for long; and whether the job has failed is not its to say.
//
//   phase     event                               to        action
//   running   the coordinator asks for a worker   running   start it
//   running   a worker ends well                  running   tell the coordinator
//   running   a worker fails, no view known       ending    tell; give the others a second to end by themselves
//   running   a worker fails, there was a view    running   tell; one line: the others go on
//   ending    there is a view after all           running   one line for each that failed
//   ending    the second is over                  ending    report; SIGTERM to the rest, SIGKILL after the grace time
//   running   INT, TERM or HUP                    stopping  SIGTERM to all, SIGKILL after the grace time
//   running   the coordinator cannot be kept      stopping  the same
//   running   this machine will be taken away     stopping  the same, in the time that is left
//   running   there are fewer slots than workers  running   SIGTERM to the youngest, SIGKILL after the grace time
//   any       another signal, QUIT                same      SIGKILL to all; but TERM within a second is the same TERM
//   any       the last worker ended               settling  judge the job; end what the workers left in their groups
//   settling  all output is copied                -         end the coordinator
//
// How a job that has begun ended is the coordinator's word (wire::Over). The program has the last one: if every worker
// that ended its loop well then failed, the job has failed. The exit code is 0 if the job finished; 128 + N if signal N
// stopped it, 143 if its workers were all told to leave; else that of the worker to blame, or 1.
//
// Nothing a worker or the coordinator needs is the agent's: if it is killed, they go on, and another one may take up
// the job. How the workers end that an earlier agent has started, no later one can know; but whoever said goodbye to
// the coordinator has ended well.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/console.h"
#include "apps/pliant/coordinator_keeper.h"
#include "apps/pliant/countdown.h"
#include "apps/pliant/deaths.h"
#include "apps/pliant/event_log.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/job_news.h"
#include "apps/pliant/own_record.h"
#include "apps/pliant/run.h"
#include "apps/pliant/signals.h"
#include "apps/pliant/slot_supply.h"
#include "apps/pliant/status_line.h"
#include "apps/pliant/status_reporter.h"
#include "apps/pliant/verdict.h"
#include "apps/pliant/worker_set.h"
#include "base/clock.h"
#include "net/loop.h"
#include "session/worker_note.h"

namespace pliant::cli {

/// What the user is told when a job begins again from a checkpoint.
std::string restart_line(const wire::ViewNotice& view);

/// How the agent of a host introduces itself to the coordinator.
net::Credentials agent_credentials(const std::string& job, const net::Secret& secret);

class Agent {
 public:
  static constexpr Nanos kPatience =
      std::chrono::seconds(1);  ///< for others to end by themselves, before anybody is told to

  /// `record` names the job and its program; `dir` is its directory. Workers that run already are taken up.
  /// `environment` is what new ones inherit.
  Agent(const RunOptions& options, JobRecord record, JobDir dir, std::vector<std::string> environment);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Runs the job to its end. Blocks the process's signals for good. Returns the exit status.
  int run();

 private:
  enum class Phase { running, ending, stopping, settling };

  // agent_start.cc: up to the moment when the loop runs, and what the coordinator says.
  Status start();
  void keep_coordinator();
  int abandon(const Error& error);
  int let_go(const Error& error);
  void introduce();
  void on_message(const wire::Message& message);
  void on_parted(const wire::Parted& parted);
  void start_worker(std::uint64_t id);
  void on_state(const wire::JobState& state);
  bool resume();
  void on_over(const wire::Over& over);
  void on_stop(const wire::Stop& stop);
  void on_hopeless(const Error& error);

  // agent_supply.cc: what follows from slots that come and go.
  SlotEvents slot_events();
  void on_slots();
  void announce_slots();
  void send_away_surplus();
  void kill_overdue();

  void tick();
  void reap();
  void on_end(Worker& worker);
  void on_death(const Death& death);
  void name_early_exit(std::uint64_t id);
  void give_up_on_explanations();
  void tell_end(Worker& worker);
  void on_signal(int number);

  void end_workers();
  void kill_workers();
  void announce(const Death& death);
  void report_failure();
  void begin_settling();
  void settle();
  bool judged();
  Outcome judgement() const;
  void conclude(Outcome outcome);
  bool judge_part();
  bool coordinator_is_done();
  bool is_needed() const;
  bool leftovers_gone();
  bool output_copied();

  /// What it has written down.
  session::WorkerNote note_of(std::uint64_t id) const;
  /// The same, as the coordinator hears it.
  wire::Ended ended_of(std::uint64_t id, bool good, const std::string& words) const;
  Snapshot snapshot() const;
  void say(const std::string& lines);

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
  EventLog events_;
  SlotSupply supply_;
  JobNews news_;
  std::vector<WorkerRecord> missed_;  // an earlier agent's, whose end nobody saw, and no coordinator has heard of
  bool refused_ = false;

  Phase phase_ = Phase::running;
  Deaths deaths_;
  std::optional<Error> cannot_start_;
  Countdown countdown_;
  Nanos stopping_since_{0};
  bool reported_ = false;
  bool judged_ = false;
  Verdict verdict_;
  bool leftovers_gone_ = false;
  Nanos next_scan_{0};
};

}  // namespace pliant::cli
