// Learning rates that follow the job: pure functions of where it is, multiplied together.
//
//   namespace rules = pliant::rules;
//   auto rate = rules::constant(0.1) * rules::linear_scaling(256) * rules::warm_up(5) *
//               rules::step_decay({30, 60, 80}, 0.1);
//   optimizer.rate(rate);
//
// A rule is asked before every update, on all workers alike, and what it sees is the same on all of them; so are the
// rates. When the batch grows, what rates and momenta need is in Compensation and AdaScale.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace pliant::rules {

/// Where a job is when a step's update is due.
struct Where {
  std::uint64_t step = 0;
  double epoch = 0;     ///< with its fraction
  double progress = 0;  ///< of the whole job, from 0 to 1
  double batch = 1;     ///< samples of this step
  int workers = 1;
};

/// A factor of the learning rate. A value: copied freely.
class Rule {
 public:
  using Function = std::function<double(const Where&)>;
  explicit Rule(Function function) : function_(std::move(function)) {}
  double operator()(const Where& where) const { return function_(where); }
  friend Rule operator*(Rule a, Rule b) {
    return Rule([a = std::move(a), b = std::move(b)](const Where& where) { return a(where) * b(where); });
  }

 private:
  Function function_;
};

Rule constant(double rate);
/// batch / base: as many times the rate as the batch is larger (Goyal et al., arXiv 1706.02677).
Rule linear_scaling(double base_batch);
/// √(batch / base): for Adam and its kin, whose steps do not grow with the gradient.
Rule square_root_scaling(double base_batch);
/// From the rate of one worker to that of all of them in the first epochs: 1/N · (e (N-1)/epochs + 1), then 1.
Rule warm_up(double epochs);
/// From `from` to 1 in the first epochs.
Rule warm_up_from(double from, double epochs);
/// × factor at each of these epochs.
Rule step_decay(std::vector<double> epochs, double factor);
/// (1 - progress)^power.
Rule poly_decay(double power);
/// From 1 to `last`, along half a cosine over the whole job.
Rule cosine_decay(double last = 0);

/// Momentum compensation for batches that change while training runs (Dynamic SGD: Lin et al., arXiv 1904.12043).
///
/// Momentum that was gathered at a small batch is noisy. A rate that is multiplied by k together with the batch makes
/// that noise k² as large, all at once; a rate that grows to it over some steps lets the old momentum fade first. With
/// a smaller batch there is nothing to wait for: the rate falls at once.
///
/// Multiply the scheduled rate by factor(); it is the rate's relation to that of the batch it was made with.
class Compensation {
 public:
  struct Options {
    std::uint64_t ramp = 0;  ///< steps; 0: 8 up to four times the batch, 4 for each time above, 32 at most
    bool literal = false;    ///< as published: down, too, over so many steps
  };
  explicit Compensation(double batch) : Compensation(batch, Options{}) {}
  Compensation(double batch, Options options) : options_(options), base_(batch), target_(1), from_(1) {}

  /// The batch of `step` and those that follow. In the middle of a ramp another one begins where that one is.
  void change(std::uint64_t step, double batch);
  /// Of the update of this step; not before the last change.
  double factor(std::uint64_t step) const;

  /// All of it, to move it to another worker: base, from, target, begin, length of the ramp.
  std::vector<double> save() const;
  void load(const std::vector<double>& saved);

 private:
  Options options_;
  double base_;
  double target_, from_;
  std::uint64_t begun_ = 0, length_ = 0;
};

/// AdaScale SGD (Johnson et al., arXiv 2007.05105): how many steps at the base batch one step at a larger one is worth.
/// The rate is gain() times that of the schedule, which is asked at steps() instead of at the number of steps taken, so
/// that it ends after the same progress whatever the batch.
class AdaScale {
 public:
  explicit AdaScale(double base_batch) : base_(base_batch) {}

  /// A step's estimates: the variance of one sample's gradient, and the squared norm of the true gradient. Before its
  /// update.
  void observe(double variance, double signal, double batch);
  /// In [1, batch / base]; 1 before anything was observed.
  double gain() const { return gain_; }
  /// The update is done.
  void advance() { steps_ += gain_; }
  /// Scale-invariant steps so far.
  double steps() const { return steps_; }

  std::vector<double> save() const;
  void load(const std::vector<double>& saved);

 private:
  double base_;
  double variance_ = 0, signal_ = 0;  // of the base batch's gradient; averages
  double seen_ = 0;
  double gain_ = 1;
  double steps_ = 0;
};

/// How much a layer's rate differs from the others' (LARS: You et al., arXiv 1708.03888; LARC clips it): its weights'
/// norm over that of its gradient.
struct LayerwiseOptions {
  double trust = 0.02;
  double epsilon = 1e-8;
  double weight_decay = 0;
};
/// 1 if either norm is 0.
double layerwise_ratio(double weight_norm, double gradient_norm, const LayerwiseOptions& options);
/// The same, never more than the rate itself.
double clipped_layerwise_ratio(double weight_norm, double gradient_norm, double rate, const LayerwiseOptions& options);

}  // namespace pliant::rules
