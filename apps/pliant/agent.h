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

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/pliant/account.h"
#include "apps/pliant/blame.h"
#include "apps/pliant/console.h"
#include "apps/pliant/coordinator_keeper.h"
#include "apps/pliant/event_log.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/notice_watch.h"
#include "apps/pliant/provider.h"
#include "apps/pliant/run.h"
#include "apps/pliant/signals.h"
#include "apps/pliant/status_line.h"
#include "apps/pliant/status_reporter.h"
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
  Result<std::string> offer_place();
  void on_place(const std::string& address);
  int abandon(const Error& error);
  int let_go(const Error& error);
  void introduce();
  void on_message(const wire::Message& message);
  void on_parted(const wire::Parted& parted);
  void start_worker(std::uint64_t id);
  void on_state(const wire::JobState& state);
  void on_over(const wire::Over& over);
  void take_back_over();
  void on_stop(const wire::Stop& stop);
  void on_hopeless(const Error& error);
  void write_record_soon();

  // agent_supply.cc: slots that come and go, and what they cost.
  Status open_supply();
  void on_trace_notice(const std::string& who);
  void watch_for_notice();
  void on_notice(const SpotNotice& notice);
  void follow_price();
  void set_slots(std::uint32_t slots);
  void announce_slots();
  void send_away_surplus();
  void kill_overdue();

  void tick();
  void reap();
  void on_end(Worker& worker);
  void on_death(const Death& death);
  void explain_end(std::uint64_t id, bool goodbye);
  void name_early_exit(std::uint64_t id);
  bool has_begun() const;
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
  Outcome verdict() const;
  void conclude(Outcome outcome);
  bool judge_part();
  bool coordinator_is_done();
  bool is_needed() const;
  bool leftovers_gone();
  bool output_copied();

  bool ended_well(const Worker& worker) const;
  bool in_view(std::uint64_t id) const;
  /// What it has written down.
  session::WorkerNote note_of(std::uint64_t id) const;
  /// The same, as the coordinator hears it.
  wire::Ended ended_of(std::uint64_t id, bool good, const std::string& words) const;
  Snapshot snapshot() const;
  void say(const std::string& lines);
  /// "host b: " where there are several.
  std::string where() const;

  const RunOptions options_;
  JobRecord record_;
  JobDir dir_;
  SteadyClock clock_;
  Nanos started_;
  net::Loop loop_;
  Console console_;
  StatusReporter reporter_;
  SignalWatch signals_;
  WorkerSet workers_;
  std::optional<CoordinatorKeeper> keeper_;
  EventLog events_;
  bool record_stale_ = false;
  std::unique_ptr<Provider> provider_;
  std::optional<NoticeWatch> notices_;
  std::uint32_t slots_ = 0;
  bool told_of_least_ = false;
  Account account_;
  std::string own_place_;  // where the coordinator is if it comes here; empty: not chosen yet
  const bool attached_;    // to a job that ran already

  // What the coordinator said last.
  wire::JobState state_;
  std::optional<wire::Over> over_;        // how the job ended
  std::set<std::uint64_t> said_goodbye_;  // of those that an earlier agent started
  std::vector<WorkerRecord> missed_;      // ... those whose end nobody saw, and no coordinator has heard of
  bool refused_ = false;
  std::optional<wire::Progress> progress_;
  Pace pace_;

  Phase phase_ = Phase::running;
  int turn_ = 0;
  std::vector<Death> deaths_;
  std::vector<Death> unexplained_;      // the coordinator will say whether they said goodbye
  std::set<std::uint64_t> unanswered_;  // it was told of their ends, and what it has heard from them may be on its way
  Nanos told_{0};                       // when it was told last
  std::optional<Error> cannot_start_;
  bool interrupted_ = false;
  Nanos stopping_since_{0};
  bool reported_ = false;
  bool judged_ = false;
  Outcome outcome_ = Outcome::running;  // of the job; known when it is judged
  int exit_status_ = 0;
  std::optional<Nanos> end_at_;    // when to send SIGTERM
  std::optional<Nanos> kill_at_;   // when to send SIGKILL
  std::optional<Nanos> leave_at_;  // when to stop waiting for whoever reads our output
  bool leftovers_gone_ = false;
  Nanos next_scan_{0};
};

}  // namespace pliant::cli
