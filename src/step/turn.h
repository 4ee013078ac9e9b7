// One step of a worker after the other, from its beginning to its end: whose samples it is made of, what is said when
// it is closed, and what follows from what all have said. No I/O: whoever drives it waits and exchanges.
#pragma once

#include <pliant/pliant.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "membership/view.h"
#include "record/record.h"
#include "step/job_state.h"
#include "step/reductions.h"
#include "step/summary.h"
#include "step/tables.h"

namespace pliant::step {

/// Where a step's time has gone.
struct StepTiming {
  Nanos began{0};
  Nanos exposed{0};  ///< waited for others
  Nanos input{0};    ///< waited for samples
  Nanos stalled{0};  ///< waited for another view
};

class Turn {
 public:
  explicit Turn(TransitionWatch* watch) : state_(StepTable::between, watch) {}

  StepTable::State state() const { return state_.state(); }
  bool in_step() const { return !state_.is(StepTable::between); }
  bool computing() const { return state_.is(StepTable::computing); }
  bool closed() const { return state_.is(StepTable::closed); }
  /// From close() on, until all have it.
  bool closing() const { return in_step() && !computing() && !closed(); }
  /// All of the step is here.
  bool complete() const { return state_.is_one_of({StepTable::held, StepTable::closed}); }
  /// If the view has ended and another was entered, in which all have what this worker is in (or not).
  StepFate fate(bool all_have_it) const;

  // ---- whose samples ----
  /// The same in all of a step, whoever is lost.
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(assignment_.shares.size()); }
  const LeaseAssignment& assignment() const { return assignment_; }
  /// Outside of a step.
  void place(LeaseAssignment assignment, int rank);
  std::vector<Range> ranges_of(const JobState& job, int slot) const;
  Lease lease(const JobState& job, bool shuffle) const;
  Lease take_lease(const JobState& job, bool shuffle);
  bool leased() const { return leased_ == Leased::taken; }
  /// Samples that this worker contributes: its lease, or the planned local batch without a sampler.
  double contribution(const JobState& job) const;
  /// A step's batch is constant: another one takes effect with the next step.
  void set_next_batch(const BatchPlan& plan) { next_batch_ = plan; }

  // ---- what happens in it ----
  void begin(const JobState& job, std::uint64_t self, Nanos now);
  void log(LogEntry entry) { logs_.push_back(std::move(entry)); }
  std::size_t logs() const { return logs_.size(); }
  /// A result with everybody's samples was used before the step was closed.
  void deliver() { delivered_ = 1; }
  StepTiming& timing() { return timing_; }

  /// A row of what is to be said at its end; what is measured elsewhere is for the caller to fill in.
  SummaryRow& fill_row(const JobState& job);
  SummaryRow& row() { return row_; }
  std::string encoded_row();
  /// What the row says of the next view is about this plan.
  void name_plan(std::optional<membership::View> plan);

  /// The program has left its loop in the middle of the step, and begins another: the step does not count.
  void abandon() { state_.on(StepTable::abandon); }

  // ---- closing it ----
  void close() { state_.on(StepTable::close); }
  /// The rows are exchanged in this view.
  void attempt_in(const membership::View& view) { closing_view_ = view; }
  void rows_here(Rows rows);
  void reduced() { state_.on(StepTable::reduced); }
  void confirmed() { state_.on(StepTable::confirmed); }
  /// The view has ended. `settled`: everybody's rows, if all had been published; `reductions_held`: so are all of the
  /// step's reductions.
  void interrupted(std::optional<Rows> settled, bool reductions_held);
  bool lacks_rows() const { return rows_.empty(); }
  /// Another view was entered, or there is none.
  void settle(bool all_have_it);
  /// What all have said, once closed. Failure if replicas differ.
  const Summary& conclude();
  const Summary& summary() const { return summary_; }
  /// The view in which it was closed.
  const membership::View& closing_view() const { return closing_view_; }
  const std::optional<membership::View>& named_plan() const { return named_plan_; }

  // ---- ending it ----
  /// The job is one step further: what was leased by those whose samples did not make it into the step comes back.
  void commit(JobState& job);
  /// Of the step that was closed, before it is committed; the digests and times are the caller's.
  record::StepRecord record(const JobState& job, std::uint64_t self) const;
  /// Where the time has gone, once the step is over.
  StepTimes end(const JobState& job, Nanos now);
  const StepTimes& last_times() const { return times_; }

 private:
  enum class Leased { no, taken };

  Machine<StepTable> state_;
  LeaseAssignment assignment_;
  int rank_ = 0;
  Leased leased_ = Leased::no;
  std::vector<Range> lease_;  // positions that were taken
  std::uint64_t lease_size_ = 0;
  std::optional<BatchPlan> next_batch_;
  std::uint64_t delivered_ = 0;
  std::vector<LogEntry> logs_;
  SummaryRow row_;
  std::optional<membership::View> named_plan_;
  Rows rows_;  // everybody's; empty: not here
  membership::View closing_view_;
  Summary summary_;
  std::vector<std::uint64_t> slots_;  // whose samples count
  StepTiming timing_;
  StepTimes times_;   // of the step before
  double speed_ = 0;  // in it: samples per second of computing; 0: there was none
};

/// What all rows say. Failure if they do not fit together.
Summary fold_rows(const Rows& rows, std::size_t slots);

}  // namespace pliant::step
