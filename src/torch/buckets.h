// Gradients in buckets: contiguous blocks of registered memory that are reduced as soon as they are full.
#pragma once

#include <pliant/torch.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/runtime.h"
#include "step/reduction.h"
#include "torch/places.h"

namespace pliant::adapter {

/// Threads: one at a time. backward() on CPU tensors runs its hooks on the thread that called it.
class Buckets {
 public:
  Buckets(session::Runtime& runtime, std::vector<torch::Tensor> parameters, const OptimizerOptions& options);

  std::size_t size() const { return parameters_.size(); }
  torch::Tensor& parameter(std::size_t index) { return parameters_[index]; }

  /// Parameter `index` has got a gradient in .grad(): moves it into its bucket if it was not born there, and submits
  /// the bucket if that was the last one missing.
  void ready(std::size_t index);
  /// Submits what backward did not fill: unused parameters count as zeros.
  void submit_rest();
  /// Once the step is closed: reads the results. True if the sum of squares is finite.
  bool take_results();
  double squared_norm() const { return squared_norm_; }

  /// Points every .grad() at the mean (shared, read-only memory), or at private copies of it times `factor`.
  /// Parameters that no worker used get none.
  void show_mean();
  void copy_mean(double factor);
  /// Points every .grad() that was shown a mean back at this worker's own memory.
  void show_own();
  /// Makes ready for the next backward pass.
  void reset();
  /// After the first step: adopts the order in which rank 0's gradients became ready. Collective.
  void learn_order();
  /// The view has changed, and with it where results are; on a newcomer also the order, which came with the job's
  /// state.
  void rebind();
  /// The order as shared state.
  StatePtr order_state() const;

 private:
  class SequenceState;
  struct Slot {
    std::size_t bucket = 0;
    std::size_t offset = 0;  // bytes in the bucket's region
    std::optional<std::size_t> place;
    torch::Tensor own;  // views of registered memory with the parameter's shape
    torch::Tensor mean[2];
    torch::Tensor old_mean;  // in the memory of a view that has ended
    torch::Tensor hidden;    // what .grad() was before the mean was shown there
    int passes = 0;
    bool ready = false;
    bool used_by_anyone = true;
  };
  struct Bucket {
    std::string name;
    Dtype dtype = Dtype::f32;
    step::StableRegionPtr memory;
    std::size_t begin = 0, count = 0;  // bytes, elements
    std::vector<std::size_t> members;
    std::size_t missing = 0;
    step::StepReductionPtr reduction;
  };
  void lay_out();
  void bind(std::size_t index);
  void bind_means(std::size_t index);
  void submit(Bucket& bucket);
  void move_in(std::size_t index);
  /// The slot as a tensor for .grad(). Nothing else lives there as long as it does.
  torch::Tensor take(std::size_t index);
  bool is_own(std::size_t index) const;
  torch::Tensor& mean_of(std::size_t index);

  session::Runtime& runtime_;
  const OptimizerOptions options_;
  std::vector<torch::Tensor> parameters_;
  std::map<Dtype, step::StableRegionPtr> regions_;
  std::unique_ptr<Places> places_;
  step::StableRegionPtr used_;  // one byte per parameter: did anybody use it?
  step::StepReductionPtr used_reduction_;
  std::vector<Slot> slots_;      // by parameter
  std::vector<Bucket> buckets_;  // in the order in which they are expected to fill
  /// Of parameters in the buckets' memory.
  struct Sequence {
    std::vector<std::int32_t> numbers;
    std::int32_t learned = 0;
  };
  std::shared_ptr<Sequence> order_ = std::make_shared<Sequence>();  // shared: as state it may outlive this
  std::vector<std::int32_t> seen_order_;
  std::int32_t laid_out_ = 0;  // what order_->learned was then
  double squared_norm_ = 0;
};

/// The reducible type of a tensor; Failure for types that cannot be reduced.
Dtype dtype_of(const torch::Tensor& tensor);

}  // namespace pliant::adapter
