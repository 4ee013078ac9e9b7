// The inside of a session: what adapters (src/torch) and the public classes are built on. It drives the step machine
// (step/tables.h) with real waits.
//
//   begin_step()   the view may change; then lease and random streams of the step are fixed
//   … the caller computes and submits reductions …
//   close_step()   rows are exchanged, reductions waited for: from here on everybody commits this step
//   end_step()     the ledger moves on, the digest of a stripe of state is taken, the next step begins
// An adapter closes the step itself (DistributedOptimizer::step); otherwise the loop does so at the turn's end.
#pragma once

#include <pliant/pliant.h>
#include <pliant/rules.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "collective/group.h"
#include "membership/view.h"
#include "session/gradient_monitor.h"
#include "session/launch.h"
#include "session/platform.h"
#include "session/reporter.h"
#include "session/training.h"
#include "session/view_driver.h"

namespace pliant::session {

class Runtime final : public step::Reducer {
 public:
  /// As the environment says: the worker of a job that `pliant run` has started, or srun or mpirun, or a job of one.
  static Result<std::unique_ptr<Runtime>> join(const JoinOptions& options);
  /// As a member of a known view, without a coordinator.
  static Result<std::unique_ptr<Runtime>> form(const std::string& job, const membership::View& view, int rank,
                                               Fd listener,
                                               std::optional<collective::HostsOptions> hosts = std::nullopt,
                                               collective::WatchMaker watch = {});
  ~Runtime() override;

  /// As the current step sees them: constants inside a step, whoever is lost.
  int rank() const { return training_.turn.rank(); }
  int size() const { return training_.turn.size(); }
  std::uint64_t worker() const { return training_.self; }
  std::uint64_t seed() const { return training_.job.seed; }
  /// The view in force, which may be newer than the step.
  const membership::View& view() const { return views_.view(); }
  /// This worker was asked to leave, and has.
  bool departed() const { return views_.left(); }
  /// How the loop ended.
  Outcome outcome() const { return outcome_; }
  void resize(int workers);
  const Training& training() const { return training_; }
  const ViewDriver& views() const { return views_; }

  // ---- state and samples ----
  Replicas& replicas() { return training_.replicas; }
  /// From the next step on, if this one has begun: a step's batch is constant, its samples are leased by it.
  void set_batch(const BatchPlan& plan);
  void attach_sampler(std::uint64_t samples, bool shuffle);
  /// How much of each batch this worker takes, relative to the others (1).
  void set_workload(double relative);
  Lease take_lease() { return training_.turn.take_lease(training_.job, shuffle_); }
  Lease next_lease() const;
  std::uint64_t epoch() const { return training_.job.epoch(); }
  std::uint64_t global_batch() const { return training_.job.global_batch(size()); }
  std::uint64_t steps_per_epoch() const;
  /// Samples that this worker contributes to the current step.
  double contribution() const { return training_.turn.contribution(training_.job); }

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
  bool closed() const { return training_.turn.closed(); }
  /// Ends the turn: closes the step if nobody did, and commits.
  void end_step();
  std::uint64_t step() const { return training_.job.step; }
  RandomStream random(std::uint64_t slot) const { return {seed(), epoch(), step(), slot}; }

  void log(std::string_view name, double value);
  const std::map<std::string, double>& averages() const { return reporter_.averages(); }
  /// The learning rate, for the record.
  void set_rate(double rate) { reporter_.set_rate(rate); }
  void count_skipped() { ++training_.job.skipped; }
  std::uint64_t skipped() const { return training_.job.skipped; }
  /// Time that was spent waiting for samples, in this step.
  void count_input(Nanos time) { training_.turn.timing().input += time; }

  // ---- monitors and policies ----
  Adaptation& adaptation() { return training_.adaptation; }
  /// Where the job is, for rules.
  rules::Where where() const;
  /// What is to be measured of this step's gradients.
  collective::Measure gradient_measure() const { return gradients_.measure(); }
  bool variance_due() const { return training_.adaptation.variance_due(step()); }
  /// The step that was committed last.
  const StepReport& report() const { return reporter_.report(); }
  Metrics& metrics() { return reporter_.metrics(); }

  // ---- collectives for everyone ----
  step::StableRegionPtr region(const std::string& name, std::size_t bytes) override;
  step::StepReductionPtr submit(step::Task task) override;
  void wait(const step::StepReductionPtr& reduction);
  /// The same for plain memory of the caller's stack: if this throws, nobody reduces it again.
  void wait_here(const step::StepReductionPtr& reduction);
  /// REQUIRES done, of registered memory. Stays readable until the use after the next of its name, whoever holds it.
  const void* result_of(step::StepReduction& reduction);
  double average(const std::string& name, double value, double weight);
  std::uint64_t digest();
  /// Ends this worker's part without waiting for anybody: in good order, or because of an exception.
  void leave(bool failed = false);
  /// An exception has left the running loop: this worker leaves its job at once, and the others go on without it. A job
  /// of one may go on.
  void fail_loop();
  /// This process is a child that inherited the session by fork(): the session is not its own.
  bool inherited() const;
  /// An exception that was thrown after the session had been made is unwinding the stack.
  bool unwinding() const;

 private:
  Runtime(std::uint64_t self, std::uint64_t seed, std::unique_ptr<Roster> roster);

  // runtime_join.cc
  static Result<std::unique_ptr<Runtime>> join_invited(RosterOptions options);
  static Result<std::unique_ptr<Runtime>> join_launched(const Launch& launch, const JoinOptions& options);

  void check_usable() const;
  void abandon_step();
  void begin_first_loop();
  void pass_by_loop();
  void end_loop();
  void finish_job();
  void fill_row();
  membership::Leaving leaving(const Roster& roster) const;
  std::string row_now();
  void close_surely();
  Status try_to_close();
  void act(const Action& action);
  void call(std::vector<std::weak_ptr<std::function<void()>>>& listeners);

  Platform& platform_;
  const Clock& clock_;
  const std::int32_t process_;  // that made it
  const int exceptions_;        // that were in flight then
  std::vector<std::weak_ptr<std::function<void()>>> at_step_, at_view_;
  Training training_;
  ViewDriver views_;
  Reporter reporter_;
  GradientMonitor gradients_;
  bool shuffle_ = true;
  bool own_process_ = false;                 // that a scheduler may notify
  std::uint32_t share_ = step::kUsualShare;  // of the batch that this worker wants from now on
  std::unique_ptr<Notice> notice_;           // while a loop runs
  std::map<std::string, std::array<std::shared_ptr<collective::Region>, 2>> results_;  // given out last, by name
  Outcome outcome_ = Outcome::running;                                                 // of the loop
};

}  // namespace pliant::session
