// The supervision of a job's workers on one host: which are started, who is told to end and when, what the coordinator
// hears, and how it all ended. A machine without I/O: an agent's process drives it, and so does the simulation of whole
// jobs.
//
// The agent of one host of several (`part`) does the same, but the coordinator is elsewhere, in reach or not. Such an
// agent stays when it has no workers, since more may be asked for, until the coordinator says that the job is over, or
// is not there for long; and whether the job has failed is not its to say.
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
//   running   the job has been over for a second  running   SIGTERM to those outside of its last view whose loop has
//                                                           not ended (a worker that was stopped until then does not
//                                                           hear of the end), SIGKILL after the grace time
//   any       another signal, QUIT                same      SIGKILL to all; but TERM within a second is the same TERM
//   any       the last worker ended               settling  judge the job
//
// How a job that has begun ended is the coordinator's word (wire::Over). The program has the last one: if every worker
// that ended its loop well then failed, the job has failed. The exit code is 0 if the job finished; 128 + N if signal N
// stopped it, 143 if its workers were all told to leave; else that of the worker to blame, or 1.
//
// How the workers end that an earlier agent has started, no later one can know; but whoever said goodbye to the
// coordinator has ended well.
//
// A worker that has ended is forgotten once it can concern nobody: a coordinator has heard of its end, its loop was not
// finished, it acted in no view that is newer than the one in force, and that one came from a plan that was made when
// the end was known. How the job ends is then a matter of others; no view names the worker any more (see
// membership/coordinator.h), so no coordinator need hear of it from a later agent; and its id is not started again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/countdown.h"
#include "agent/deaths.h"
#include "agent/job_word.h"
#include "agent/stop_wish.h"
#include "agent/verdict.h"
#include "base/clock.h"
#include "membership/id_set.h"
#include "session/worker_note.h"
#include "wire/messages.h"

namespace pliant::agent {

/// What the user is told when a job begins again from a checkpoint.
std::string restart_line(const wire::ViewNotice& view);

/// A worker that this host is in charge of.
struct Charge {
  std::uint64_t id = 0;
  pid_t pid = 0;
  Nanos started{0};
  std::optional<Ending> ending{};  ///< nothing while it runs
  bool heard_of = false;           ///< a coordinator has heard of its end: one that was told may have died before
  std::uint64_t plans_until = 0;   ///< then no plan with a later epoch can name it
  /// It was told to leave, because its slot is not there any more or the job is over, and is killed then.
  std::optional<Nanos> leave_by{};
  bool running() const { return !ending; }
};

/// A worker of an earlier agent that was gone when this one came.
struct Missed {
  std::uint64_t id = 0;
  pid_t pid = 0;
  bool told = false;  ///< a coordinator has heard of its end, or may have: it does not cost the job another restart
};

struct SupervisionOptions {
  std::string name;  ///< what people call the job, or this part of it
  std::string job;   ///< what the coordinator calls it
  std::string host;  ///< of this part; empty if the job has one host
  std::string kind;  ///< of its slots, by price
  bool part = false;
  bool attached = false;  ///< to a job that had workers already
  std::uint32_t wanted = 1;
  Nanos grace{0};
  /// "host b: " where there are several.
  std::string where() const { return part ? "host " + host + ": " : std::string(); }
};

/// What a supervision has done. Every call comes from within one of its events.
class Driver {
 public:
  virtual ~Driver() = default;
  /// Starts a worker; its pid. Code::not_found or Code::invalid if the program cannot be executed.
  virtual Result<pid_t> start(std::uint64_t id) = 0;
  virtual void signal(std::uint64_t id, int number) = 0;
  /// To the coordinator. False if it is out of reach; the message is lost then.
  virtual bool send(const wire::Message& message) = 0;
  /// How long the coordinator has been out of reach; nothing while it is not.
  virtual std::optional<Nanos> missed_for() const = 0;
  /// Takes in what the coordinator has said by now.
  virtual void drain() = 0;
  /// What the worker has written down.
  virtual session::WorkerNote note_of(std::uint64_t id) const = 0;
  /// For the next agent: a coordinator has heard of this worker's end.
  virtual void note_told(std::uint64_t id) = 0;
  /// Nothing more is asked about this worker, which has ended; the next agent need not know of it.
  virtual void forget(std::uint64_t id) = 0;
  /// The end of its output, in lines for people.
  virtual std::string last_words(std::uint64_t id) = 0;
  /// Whole lines for people.
  virtual void say(const std::string& lines) = 0;
  /// For the job's records.
  virtual void note(const std::string& what, std::uint64_t worker, const std::string& text) = 0;
};

class Supervision {
 public:
  enum class Phase { running, ending, stopping, settling };
  /// For others to end by themselves, before anybody is told to.
  static constexpr Nanos kPatience = std::chrono::seconds(1);
  /// Of an agent without workers, far from a coordinator that does not answer.
  static constexpr Nanos kLoneliness = std::chrono::seconds(30);

  /// Clock and driver must outlive it.
  Supervision(const Clock& clock, SupervisionOptions options, Driver& driver);
  Supervision(const Supervision&) = delete;
  Supervision& operator=(const Supervision&) = delete;

  // ---- a worker that an earlier agent has started ----
  void take_up(std::uint64_t id, pid_t pid);
  void miss(const Missed& worker) { missed_.push_back(worker); }

  // ---- events ----
  /// A new connection to the coordinator stands.
  void on_connected();
  void on_message(const wire::Message& message);
  /// Some have ended: all of them, together.
  struct End {
    std::uint64_t id = 0;
    Ending ending;
  };
  void on_ended(const std::vector<End>& ends);
  void on_signal(int number);
  /// The machine will be taken away.
  void on_notice();
  void on_slots(std::uint32_t slots);
  /// There will be no coordinator.
  void on_hopeless(const Error& error);
  /// Now and then.
  void on_time();

  // ---- what became of it ----
  Phase phase() const { return phase_; }
  const JobWord& word() const { return word_; }
  /// Without those that were forgotten.
  const std::deque<Charge>& workers() const { return workers_; }
  const Charge* find(std::uint64_t id) const;
  int alive() const;
  /// In settling: it is known how the job ended. Asks again what may have come meanwhile.
  bool judged();
  const Verdict& verdict() const { return verdict_; }
  /// Of those who do not end, and of what they leave behind.
  Countdown& countdown() { return countdown_; }
  /// The program cannot be executed: there is no job.
  const std::optional<Error>& cannot_start() const { return cannot_start_; }

 private:
  // supervision.cc: workers and signals.
  void on_end(Charge& worker);
  void on_death(const Death& death);
  void name_early_exit(std::uint64_t id);
  void give_up_on_explanations();
  void announce(const Death& death);
  void announce_slots();
  void send_away_surplus();
  void send_away_left_behind();
  void send_away(Charge& worker);
  void kill_overdue();
  void signal_all(int number);
  void end_workers();
  void kill_workers();

  // supervision_words.cc: the coordinator.
  void on_parted(const wire::Parted& parted);
  void start_worker(std::uint64_t id);
  void on_state(const wire::JobState& state);
  void tell_again(const wire::ViewNotice& view);
  void on_over(const wire::Over& over);
  void on_stop(const wire::Stop& stop);
  void on_refusal(const wire::Refusal& refusal);
  void ask_to_stop(wire::Stopping how);
  void tell_stop();
  bool resume();
  bool may_be_forgotten(const Charge& worker) const;
  void forget();
  void tell_end(const Charge& worker);
  wire::AgentHello hello() const;
  wire::Ended ended_of(std::uint64_t id, const Ending& ending, const std::string& words) const;

  // supervision_end.cc: how it ended.
  bool is_needed() const;
  void begin_settling();
  bool coordinator_is_done();
  Outcome judgement() const;
  void conclude(Outcome outcome);
  void judge_part();
  void report_failure();

  Charge* charge(std::uint64_t id);
  /// It goes because it was told to.
  bool was_told(const Charge& worker) const;

  const Clock& clock_;
  const SupervisionOptions options_;
  Driver& driver_;
  const Nanos began_;
  JobWord word_;
  std::deque<Charge> workers_;        // in the order of their start
  membership::IdSet former_;          // those that were forgotten
  std::uint64_t former_view_ = 0;     // the newest that one of them was in
  std::set<std::uint64_t> told_now_;  // whose end the coordinator that there is now knows of
  std::vector<Missed> missed_;        // whose end nobody saw, and no coordinator has heard of
  std::uint32_t slots_ = 0;
  bool refused_ = false;

  Phase phase_ = Phase::running;
  Deaths deaths_;
  std::optional<Error> cannot_start_;
  Countdown countdown_;
  Nanos stopping_since_{0};
  Nanos over_since_{0};  // if word_ says that it is over
  StopWish stop_;
  bool reported_ = false;
  bool judged_ = false;
  Verdict verdict_;
};

}  // namespace pliant::agent
