// Memory and reductions that outlive views. When a worker is lost, the session goes on in another view, with fresh
// segments; whoever holds a StableRegion or a StepReduction does not notice.
#pragma once

#include <pliant/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/group.h"
#include "step/tables.h"

namespace pliant::step {

/// Registered memory under a name. `region` changes with the view, and with it where results are; its input stays.
struct StableRegion {
  std::string name;
  std::size_t bytes = 0;
  std::shared_ptr<collective::Region> region;
};
using StableRegionPtr = std::shared_ptr<StableRegion>;  // shared: by the session, which renews it, and its user

/// One reduction to do; see collective::Request. Registered: `memory` and `offset`. Plain: `in` and `out`.
struct Task {
  std::string name;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  std::size_t count = 0;
  StableRegionPtr memory;
  std::size_t offset = 0;
  const void* in = nullptr;
  void* out = nullptr;
  double weight = 1;
  collective::Measure measure = collective::Measure::nothing;
  bool caller_waits = false;
  /// Counts only if the step's summary does: all such reductions of a step have the same contributors, or are done
  /// again. Nothing may be made of the result before the step is closed.
  bool with_step = false;
  bool gradient = false;  ///< a part of the step's gradient: monitors look at what was measured
  std::shared_ptr<const collective::Marks> marks;  ///< of the tensors in it
  std::vector<std::uint32_t> tensors;              ///< their numbers, by mark
};

/// A reduction in flight. Done once, it stays done, unless it is `with_step` and its step is reduced again.
class StepReduction {
 public:
  StepReduction(Task task, TransitionWatch* watch) : task_(std::move(task)), state_(ReductionTable::running, watch) {}
  const Task& task() const { return task_; }
  bool done() const { return state_.is(ReductionTable::done); }
  const collective::OperationHandle& operation() const { return operation_; }
  const std::shared_ptr<collective::Region>& region() const { return region_; }
  /// True the first time: its result is read from now on.
  bool give_out() { return !std::exchange(given_out_, true); }
  /// REQUIRES done(). Registered memory only.
  const void* result() const { return operation_->result(); }
  const collective::Measured& measured() const { return operation_->measured(); }
  const std::vector<collective::MeasuredPart>& own_parts() const { return operation_->own_parts(); }

 private:
  friend class Reductions;
  Task task_;
  Machine<ReductionTable> state_;
  std::uint64_t number_ = 0;      // the same on all workers: name, loop, step, and how often the name was used in it
  std::vector<std::byte> input_;  // of plain memory that is reduced in place: it may have to be reduced again
  std::shared_ptr<collective::Region> region_;  // keeps the result readable when the view has gone
  collective::OperationHandle operation_;
  bool given_out_ = false;
};
using StepReductionPtr = std::shared_ptr<StepReduction>;  // shared: by the session, which repeats it, and whoever waits

/// What owners of shared state need of a session.
class Reducer {
 public:
  virtual ~Reducer() = default;
  virtual StableRegionPtr region(const std::string& name, std::size_t bytes) = 0;
  virtual StepReductionPtr submit(Task task) = 0;
};

}  // namespace pliant::step
