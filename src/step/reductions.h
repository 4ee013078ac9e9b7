// The reductions and exchanges of a worker that are in flight, and the memory they use, from view to view.
//
// When a view ends, each of them is *held* here (its result is complete) or *lacking*. The members of the next view
// tell each other what they lack: what nobody lacks is done, the rest is started again. Of a step's own reductions all
// are done, or none is.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "membership/view.h"
#include "step/job_state.h"
#include "step/reduction.h"
#include "step/summary.h"

namespace pliant::step {

using Rows = std::vector<std::string>;

/// What becomes of the step's own reductions when another view has been entered.
enum class StepFate {
  untouched,  ///< there is no step, or it is closed
  complete,   ///< all have all of it
  repeated,
};

class Reductions final : public Reducer {
 public:
  /// `job` must outlive this.
  Reductions(const JobState& job, TransitionWatch* watch);

  /// The group of the view that this worker is in. What is submitted goes there.
  void use(collective::Group* group) { group_ = group; }

  StableRegionPtr region(const std::string& name, std::size_t bytes) override;
  StepReductionPtr submit(Task task) override;
  /// Waits in the current view. Code::peer_lost: the view has ended.
  Status wait(StepReduction& reduction);
  /// All of the step's own.
  Status wait_for_step();
  /// Whatever is in flight.
  Status wait_for_all();
  void forget(const StepReductionPtr& reduction) { std::erase(all_, reduction); }
  /// The step's own are done with.
  void forget_step();
  void forget_done();
  void forget_all() { all_.clear(); }
  const std::vector<StepReductionPtr>& all() const { return all_; }
  /// The job is at another step, or in another loop: from here on all workers count names alike.
  void count_names_anew() { uses_.clear(); }

  // ---- an exchange of rows, outside of a step's end; one at a time ----
  void begin_exchange();
  bool exchange_done() const { return exchange_.is(ReductionTable::done); }
  /// One attempt in the current view.
  Status try_exchange(std::string_view row);
  Rows take_rows() { return std::exchange(rows_, {}); }

  // ---- from view to view ----
  /// The view has ended: what of it is complete here? It stands still: all who go on have fenced it. What was looked at
  /// before stays as it was found.
  void take_stock();
  bool step_held() const;
  /// Numbers of what is lacking outside of the step.
  std::vector<std::uint64_t> lacking() const;
  /// Every region gets results in the group's memory; its input stays what and where it is. Returns what is not needed
  /// any more.
  std::vector<std::shared_ptr<collective::Region>> renew_regions();
  /// Those that are in use.
  std::vector<std::shared_ptr<collective::Region>> regions() const;
  /// `lacking`: numbers of what somebody lacks.
  void settle(const std::set<std::uint64_t>& lacking, StepFate fate);
  /// Nobody is left to ask: what is not done is started again, alone. A step that was closed stays as all have it.
  void go_on_alone(StepFate fate);

  /// Adds to this worker's row and gradients those of the dead that had given everything to the step, if it is this
  /// worker that speaks for them. `ended` is the group of view `before`; only those of this host can be spoken for, and
  /// only if they are dead: who was left behind alive may still write its memory.
  void salvage(collective::Group& ended, const membership::View& before, const membership::View& after,
               std::uint64_t self, SummaryRow& row, const std::function<bool(std::uint64_t id)>& is_dead);

 private:
  std::uint64_t number_of(const std::string& name);
  void start(StepReduction& reduction);
  void start_again(StepReduction& reduction);
  bool left_complete(collective::Group& ended, int rank) const;
  void take_over(collective::Group& ended, int rank, SummaryRow& row);

  const JobState& job_;
  TransitionWatch* watch_;
  collective::Group* group_ = nullptr;
  std::map<std::string, std::weak_ptr<StableRegion>> regions_;
  std::vector<StepReductionPtr> all_;          // of this step, or not done
  std::map<std::string, std::uint64_t> uses_;  // of names in this step
  Machine<ReductionTable> exchange_;
  std::uint64_t exchange_number_ = 0;
  Rows rows_;  // of the exchange; empty: not here
};

}  // namespace pliant::step
