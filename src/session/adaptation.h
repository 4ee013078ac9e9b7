// What makes a job adaptive: monitors that follow the steps, policies that see their reports, and what comes of that.
//
// Everything in here is the same on all workers after each step, because it is made of nothing but summaries and
// measured reductions, which are; and it moves to newcomers with the job.
#pragma once

#include <pliant/pliant.h>
#include <pliant/policy.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "collective/kernels.h"
#include "monitor/noise.h"
#include "policy/board.h"
#include "step/summary.h"

namespace pliant::session {

class Adaptation {
 public:
  void monitor(const MonitorOptions& options);
  void use(std::string name, PolicyPtr policy);
  /// Those that `pliant run --policy` names, from the environment (PLIANT_POLICY, one per line).
  Status use_named();

  /// Are the contributions to the gradients of this step to be measured?
  bool noise_due(std::uint64_t step) const;
  /// In a job of one, two consecutive gradients are compared now and then: that takes a copy, about 30 times what
  /// looking at those of several workers costs.
  bool comparison_due(std::uint64_t step) const;
  bool variance_due(std::uint64_t step) const;
  void set_variances(std::vector<double> variances) { variances_ = std::move(variances); }
  void set_parameter_norm(double norm) { parameter_norm_ = norm; }
  bool parameter_norm_due(std::uint64_t step) const;
  /// What the reductions of a step's gradients have measured, all together.
  void observe(const std::optional<collective::Measured>& measured, const step::Summary& summary, bool noise);
  /// The same of a job of one, whose last gradient was the other one: `product` is their inner product.
  void observe_alone(const collective::Measured& measured, double samples, double product);
  /// This step's own estimates, not smoothed; nothing if there are none.
  const std::optional<monitor::NoiseSample>& noise() const { return noise_; }
  double gradient_norm() const { return gradient_norm_; }
  /// A step is closed: throughput.
  void count(const step::Summary& summary);
  double samples_per_second() const { return samples_per_second_; }

  /// A step is about to be closed: what this worker's policies say goes into its row.
  void fill(step::SummaryRow& row, double weight);
  /// It is closed: what all say decides. `speaks`: this worker tells people.
  void judge(const step::Summary& summary, std::uint64_t step, bool speaks);
  /// What else is to be done now, between two steps: workers and batches.
  Action take_action() { return std::exchange(action_, {}); }
  /// The batch that policies have decided on; empty: none.
  const Action& batch() const { return batch_; }
  /// Of the scheduled learning rate.
  double rate_factor() const { return rate_factor_; }
  /// A policy, or whoever else knows, has said that the job is done: on all workers, in the same step.
  bool stopped() const { return stopped_; }
  void stop() { stopped_ = true; }

  /// The loop begins here, and the job too unless this worker was taken in.
  bool begun() const { return begun_; }
  void begin(const StepReport& now);
  /// `report` gets what is known here, and is told to the policies. `last`: no other step follows.
  void conclude(StepReport& report, bool last);

  std::string save();
  Status load(std::string_view saved);

 private:
  MonitorOptions options_;
  monitor::NoiseScale scale_;
  std::optional<monitor::NoiseSample> noise_;
  double gradient_norm_ = std::nan("");
  double parameter_norm_ = std::nan("");
  std::vector<double> variances_;
  struct {
    double squares = 0, samples = 0;
  } alone_;  // the gradient before, of a job of one; no samples: there is none

  policy::Board board_;
  bool named_ = false;  // those of the environment are on the board
  bool begun_ = false;
  std::vector<Action> said_;  // by policy: what is in this worker's row
  Action action_, batch_;
  double rate_factor_ = 1;
  bool stopped_ = false;
  double samples_per_second_ = 0;  // smoothed
};

}  // namespace pliant::session
