// Pliant for LibTorch: three changed lines in a training loop.
//
//   auto session = pliant::Session::join();
//   pliant::DistributedOptimizer optimizer(session, sgd, {.local_batch = 64});
//   session.share("model", pliant::state_of(*model)).share("optimizer", pliant::state_of(sgd));
//
// Then train as ever, inside `for (auto step : session.steps(...))`.
#pragma once

#include <pliant/pliant.h>
#include <pliant/rules.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <utility>

namespace pliant {

/// A module's parameters and buffers. Floating-point buffers (BatchNorm's statistics) are averaged by samples in every
/// step, counters take the maximum. The module must outlive the session.
StatePtr state_of(torch::nn::Module& module);
/// An optimizer's state: momenta, moments, counters, as far as it has come into being.
StatePtr state_of(torch::optim::Optimizer& optimizer);

/// A rate of its own for every parameter tensor, by the norms of its weights and its mean gradient. Weight decay is
/// then LayerwiseOptions': the wrapped optimizer should have none.
enum class Layerwise : std::uint8_t {
  none,
  lars,  ///< that rate instead of the optimizer's (which multiplies it); usual trust: 0.001
  larc,  ///< that rate, but never more than the optimizer's
};

struct OptimizerOptions {
  std::uint64_t local_batch = 0;       ///< samples per worker and step; 0: leave the session's plan
  int accumulate = 1;                  ///< backward passes per step; their gradients are averaged
  double clip_norm = 0;                ///< limit of the averaged gradient's norm; 0: none
  bool skip_non_finite = true;         ///< leave a step out, on all workers, if its averaged gradient is not finite
  std::size_t bucket_bytes = 4 << 20;  ///< smaller: reduction starts earlier; larger: less to coordinate
  Layerwise layerwise = Layerwise::none;
  rules::LayerwiseOptions layers;
  bool seed_random = true;  ///< seed LibTorch's generator in every step from (seed, epoch, step, rank)
};

/// Wraps any optimizer whose step() needs no closure. Gradients become views of registered memory and are reduced
/// while backward runs; step() applies their mean over all workers, weighted by samples.
///
/// Between backward() and step() a parameter's .grad() is this worker's own gradient. To look at or change the mean
/// before it is applied, call synchronize() first: .grad() is then a private copy of the mean.
class DistributedOptimizer {
 public:
  /// `optimizer` must outlive this. Code::invalid for LBFGS, which evaluates a closure several times per step.
  DistributedOptimizer(Session& session, torch::optim::Optimizer& optimizer, const OptimizerOptions& options = {});
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  /// Forgets the gradients (sets them to none: backward need not add to zeros).
  void zero_grad();
  /// Waits for the mean gradients and puts private copies into .grad().
  void synchronize();
  /// Waits for the mean gradients, closes the session's step with all workers, and applies them.
  void step();

  /// The learning rate from now on: a rule (rules.h) that is asked before every update. Parameter groups keep their
  /// relation to the first one. Without a rule the rate is what the wrapped optimizer's options say.
  void rate(rules::Rule rule);
  /// Momentum compensation: when the batch changes, the rate follows it over some steps (see rules::Compensation). The
  /// rule, or whoever sets the rate, leaves the batch out of it.
  void compensate(const rules::Compensation::Options& options = {});
  /// AdaScale: the rate, and progress, follow the gain of the batch over `base_batch` (see rules::AdaScale). `steps`:
  /// how many the job would take at the base batch; it ends when it has made as many. 0: it ends by itself.
  void adascale(double base_batch, double steps = 0);

  /// The norm of the last step's mean gradient, before clipping; the same bits on every worker.
  double gradient_norm() const;
  /// Steps left out so far because of non-finite gradients.
  std::uint64_t skipped() const;
  torch::optim::Optimizer& inner();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// One worker's batch.
struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;
  Lease lease;
  std::int64_t size() const { return static_cast<std::int64_t>(lease.size()); }
};

/// A data set for Loader. Override get() for one example, or gather() for many at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::uint64_t size() const = 0;
  /// One example. `random` depends on seed, epoch, step and sample only: augmentation is the same whoever does it.
  virtual std::pair<torch::Tensor, torch::Tensor> get(std::uint64_t sample, RandomStream& random);
  /// A batch; by default the examples of get(), stacked. `random` gives each sample's stream.
  virtual std::pair<torch::Tensor, torch::Tensor> gather(
      const std::vector<std::uint64_t>& samples, const std::function<RandomStream(std::uint64_t sample)>& random);
};

/// A data set held in two tensors, with an optional augmentation of whole batches.
class TensorDataset final : public Dataset {
 public:
  using Augment = std::function<torch::Tensor(torch::Tensor inputs, const std::vector<std::uint64_t>& samples,
                                              const std::function<RandomStream(std::uint64_t)>& random)>;
  TensorDataset(torch::Tensor inputs, torch::Tensor targets, Augment augment = {});
  std::uint64_t size() const override;
  std::pair<torch::Tensor, torch::Tensor> gather(const std::vector<std::uint64_t>& samples,
                                                 const std::function<RandomStream(std::uint64_t)>& random) override;

 private:
  torch::Tensor inputs_, targets_;
  Augment augment_;
};

/// Random shifts by up to `most` pixels (the border is zero) and, if wanted, mirror images.
TensorDataset::Augment shift_and_flip(int most, bool flip);

/// Takes leases and makes batches of them, the next one in the background while this one trains.
class Loader {
 public:
  /// `sampler` and `dataset` must outlive this. The data set's methods are called from one other thread.
  Loader(Session& session, ElasticSampler& sampler, Dataset& dataset);
  ~Loader();
  /// This step's batch. Once per step, instead of sampler.next().
  Batch next();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// MNIST and Fashion-MNIST from a folder of IDX files (gzipped or not): inputs N×1×28×28 scaled to mean 0 and
/// deviation 1 of the training set, targets as int64.
std::pair<torch::Tensor, torch::Tensor> read_mnist(const std::string& folder, bool train);
/// CIFAR-10 from its binary files: inputs N×3×32×32 in [-1, 1].
std::pair<torch::Tensor, torch::Tensor> read_cifar10(const std::string& folder, bool train);

}  // namespace pliant
