// The session's inside: the step boundary. What adapters (src/torch) and the public classes are built on.
//
// A step, as this class sees it:
//   begin_step()   the view may change; then lease and random streams of the step are fixed
//   … the caller computes and submits reductions …
//   close_step()   buffers and the summary are exchanged: from here on everybody commits this step
//   commit         the ledger moves on, the digest of a stripe of state is taken, the next step begins
// An adapter closes the step itself (DistributedOptimizer::step); otherwise the loop does so at the turn's end.
//
// When a worker is lost, every wait in the view ends. Those who are left agree on the next view (Roster) and enter it,
// and each tells which of the interrupted reductions it has complete. What all have is done; nobody can have acted on
// anything else, because a step, and whatever else is waited for, is over only when all are known to have it. If the
// step was complete, it is committed as it is. If not, its reductions are done again from what each has: no forward or
// backward pass is run twice.
#pragma once

#include <pliant/pliant.h>
#include <pliant/rules.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "collective/group.h"
#include "membership/view.h"
#include "session/adaptation.h"
#include "session/handover.h"
#include "session/janitor.h"
#include "session/journal.h"
#include "session/launch.h"
#include "session/ledger.h"
#include "session/notice.h"
#include "session/replicas.h"
#include "session/roster.h"
#include "session/summary.h"
#include "session/ticket.h"

namespace pliant::session {

class Core final : public Reducer {
 public:
  /// As the environment says: the worker of a job that `pliant run` has started, or srun or mpirun, or a job of one.
  static Result<std::unique_ptr<Core>> join(const JoinOptions& options);
  /// As a member of a known view, without a coordinator.
  static Result<std::unique_ptr<Core>> form(const std::string& job, const membership::View& view, int rank, Fd listener,
                                            std::optional<collective::HostsOptions> hosts = std::nullopt);
  ~Core() override;

  /// As the current turn sees them: constants inside a step, whoever is lost.
  int rank() const { return turn_.rank; }
  int size() const { return turn_.size; }
  std::uint64_t worker() const { return self_; }
  std::uint64_t seed() const { return seed_; }
  /// The view in force, which may be newer than the turn.
  const membership::View& view() const { return view_; }
  /// This worker was asked to leave, and has.
  bool departed() const { return departed_; }
  void resize(int workers);

  // ---- state and samples ----
  Replicas& replicas() { return replicas_; }
  void set_batch(const BatchPlan& plan);
  void attach_sampler(std::uint64_t samples, bool shuffle);
  /// How much of each batch this worker takes, relative to the others (1).
  void set_workload(double relative);
  Lease take_lease();
  Lease next_lease() const;
  std::uint64_t epoch() const { return ledger_ ? ledger_->epoch() : 0; }
  std::uint64_t global_batch() const;
  std::uint64_t steps_per_epoch() const;
  /// Samples that this worker contributes to the current step: its lease, or the planned local batch without a sampler.
  double contribution() const;

  // ---- steps ----
  /// The loop begins: a newcomer is taken into the job here.
  void start(const StepsOptions& options);
  /// The next step, or nothing when the job's work is done or this worker has left.
  std::optional<Step> begin_step();
  /// Calls `*listener` at the beginning of every step, or after every change of view, as long as its owner keeps it.
  using Listener = std::shared_ptr<std::function<void()>>;
  void at_step_begin(const Listener& listener) { at_step_.push_back(listener); }
  void at_view_change(const Listener& listener) { at_view_.push_back(listener); }
  /// Exchanges buffers and the summary, and waits for all reductions of the step. Once per step; Failure if replicas
  /// differ.
  void close_step();
  bool closed() const { return closed_; }
  /// Ends the turn: closes the step if nobody did, and commits.
  void end_step();
  std::uint64_t step() const { return step_; }
  RandomStream random(std::uint64_t slot) const { return {seed(), epoch(), step_, slot}; }

  void log(std::string_view name, double value);
  const std::map<std::string, double>& averages() const { return averages_; }
  /// The learning rate, for the record.
  void set_rate(double rate) { rate_ = rate; }
  void count_skipped() { ++skipped_; }
  /// Time that was spent waiting for samples, in this step.
  void count_input(Nanos time) { input_ += time; }
  std::uint64_t skipped() const { return skipped_; }

  // ---- monitors and policies ----
  Adaptation& adaptation() { return adaptation_; }
  /// Where the job is, for rules.
  rules::Where where() const;
  /// What is to be measured of this step's gradients.
  collective::Measure gradient_measure() const;
  bool variance_due() const { return adaptation_.variance_due(step_); }
  /// The step that was committed last.
  const StepReport& report() const { return report_; }
  Metrics& metrics() { return metrics_; }

  // ---- collectives for everyone ----
  AreaPtr area(const std::string& name, std::size_t bytes) override;
  TicketPtr submit(Task task) override;
  void wait(const TicketPtr& ticket);
  double average(const std::string& name, double value, double weight);
  std::uint64_t digest();
  /// Leaves in good order, without waiting for anybody.
  void leave();

 private:
  struct Turn {
    Deal deal;
    int rank = 0, size = 1;
  };
  using Rows = std::vector<std::string>;
  /// What the members of a view have found out together about what the one before left open.
  struct Settled {
    bool step_complete = false;       // all have the step that this worker is in
    std::set<std::uint64_t> missing;  // what somebody lacks
  };

  Core(std::uint64_t self, std::uint64_t seed, std::unique_ptr<Roster> roster);

  // core_join.cc
  static Result<std::unique_ptr<Core>> join_invited();
  static Result<std::unique_ptr<Core>> join_launched(const Launch& launch, const JoinOptions& options);

  // core.cc
  std::vector<Range> ranges_of(int slot) const;
  Lease lease_of(const Ledger& ledger, std::uint64_t step) const;
  bool finished() const;
  void settle_down();
  void fill_row();
  std::string row_now();
  Summary fold_rows(const Rows& rows) const;
  Rows close_surely();
  Status try_close();
  void absorb(const Summary& summary);
  void commit_ledger();
  void finish_job();
  double progress() const;
  void end_loop();
  StepRecord record_of_step() const;
  bool speaks_for_job() const;
  Position position();
  void resume(const std::string& dir);

  // core_watch.cc
  void watch_gradients();
  std::vector<double> tensor_variances();
  void act(const Action& action);
  StepReport report_of_step() const;
  void update_metrics();
  void report_progress();
  double loss() const;

  // core_views.cc
  /// Forms a group for `view` and settles with its members what is to be done. Code::peer_lost: another is needed.
  Status try_enter(const membership::View& view, std::unique_ptr<collective::Group>& entered);
  void enter_next();
  void go_solo();
  void be_alone();
  void fall_out();
  Status settle_in(collective::Group& group);
  Status transfer(collective::Group& group, const membership::Verdict& verdict);
  Status compare_all(collective::Group& group);
  std::string own_digest() const;
  Status unpack(const std::string& luggage);
  membership::Report standing() const;
  void take_stock();
  void apply(const Settled& settled);
  std::vector<std::shared_ptr<collective::Region>> renew_areas();
  void salvage(const membership::View& before, collective::Group& group);
  static bool is_heir(std::uint64_t self, const membership::View& before, const membership::View& after, int dead);
  bool left_complete(collective::Group& group, int rank);
  void take_over(collective::Group& group, int rank);
  void change_view();
  bool detached_until_taken_in();
  /// Throws `error` unless it means that the view has ended and another will follow; enters that one.
  void go_on_after(const Error& error);
  void await_successor(const Error& error);
  void start_operation(Ticket& ticket);
  std::uint64_t number_of(const std::string& name);
  Rows exchange_surely(const std::function<std::string()>& row);

  const std::uint64_t self_;
  std::uint64_t seed_;
  std::unique_ptr<Roster> roster_;  // nullptr in a job of one
  std::unique_ptr<collective::Group> group_;
  Janitor janitor_;        // of the views before
  membership::View view_;  // the group's
  Turn turn_;
  /// Of the next step: decided by the step before, so that it is the same for all, however early or late they hear of a
  /// loss.
  Deal deal_;
  std::uint32_t share_ = kUsualShare;  // that this worker wants from now on
  bool blank_ = true;                  // has no state of the job's yet
  bool departed_ = false;
  bool fallen_ = false;                        // out of the view, in this step: it does not count
  bool own_process_ = false;                   // that a scheduler may notify
  std::optional<membership::View> following_;  // decided by the last summary
  bool all_leave_ = false;
  std::optional<Notice> notice_;
  std::optional<Journal> journal_;
  double rate_ = std::nan("");
  Nanos stalled_{0};  // of this turn

  std::map<std::string, std::weak_ptr<Area>> areas_;
  std::vector<TicketPtr> tickets_;             // of this turn, or not done
  std::map<std::string, std::uint64_t> uses_;  // of names in this turn
  std::optional<std::uint64_t> exchange_;      // the number of the exchange outside of a step's that is going on
  std::optional<Rows> held_rows_;              // of the exchange that is going on, if all are here
  bool exchange_settled_ = false;              // everybody has them
  bool step_held_ = false;                     // when the view ended, the step that is being closed was complete here
  bool step_settled_ = false;                  // everybody has it
  Settled settled_;
  membership::View closing_view_;  // that the step was closed in
  Replicas replicas_;
  SteadyClock clock_;

  BatchPlan plan_;
  std::optional<Ledger> ledger_;
  bool shuffle_ = true;
  StepsOptions options_;
  bool started_ = false;

  std::uint64_t step_ = 0;
  bool in_step_ = false;
  bool closed_ = false;
  bool closing_ = false;
  bool leased_ = false;
  bool delivered_ = false;  // a result of this step was used before it was closed
  std::uint64_t lease_size_ = 0;
  std::vector<std::uint64_t> slots_;  // whose samples count in the step that was closed
  SummaryRow row_;
  std::optional<membership::View> row_plan_;  // what the row's outlook is about
  Nanos step_began_{0};
  Nanos exposed_{0}, input_{0};      // of this turn
  StepTimes times_;                  // of the turn before
  double speed_ = 0;                 // in it: samples per second of computing; 0: there was none
  std::uint64_t stripe_digest_ = 0;  // of the stripe that is due, as committed
  std::vector<LogEntry> logs_;       // of the current turn
  std::map<std::string, double> averages_;
  std::uint64_t skipped_ = 0;
  std::uint64_t samples_seen_ = 0;  // by the whole job
  std::uint64_t lineage_ = 0;
  Adaptation adaptation_;
  std::map<std::string, std::vector<std::byte>> last_gradient_;  // of a job of one, by name
  Summary summary_;                                              // of the step that was closed
  StepReport report_;
  Metrics metrics_;
  std::vector<std::weak_ptr<std::function<void()>>> at_step_, at_view_;
};

}  // namespace pliant::session
