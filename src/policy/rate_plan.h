// How an optimizer's learning rate comes about: a rule, times what changing batches need, times what policies want.
#pragma once

#include <pliant/rules.h>

#include <array>
#include <optional>

#include "monitor/noise.h"

namespace pliant::policy {

/// Everything it knows from step to step is in state(): plain numbers that may be replaced at any time between two
/// steps, by those of another worker or of a checkpoint.
class RatePlan {
 public:
  void set_rule(rules::Rule rule) { rule_ = std::move(rule); }
  void compensate(const rules::Compensation::Options& options) { compensation_ = options; }
  /// `total`: scale-invariant steps of the whole job; 0: it ends by itself.
  void adascale(double base_batch, double total);
  bool has_rule() const { return rule_.has_value(); }
  bool follows_batch() const { return compensation_ || base_batch_ > 0; }

  struct Rate {
    double scheduled = 0;  ///< by the rule, or `own` without one
    double factor = 1;     ///< what it is multiplied by in this step
  };
  /// Of the update that is due; once per step. `noise` is what was measured in it, `own` the rate without a rule.
  Rate next(const rules::Where& where, const std::optional<monitor::NoiseSample>& noise, double own);
  /// AdaScale has made all of the job's steps.
  bool done() const;

  static constexpr std::size_t kNumbers = 16;
  std::array<double, kNumbers>& state() { return state_; }

 private:
  enum : std::size_t { kBegun = 0, kCompensation = 1, kAdaScale = 8 };  // where in state_

  std::optional<rules::Rule> rule_;
  std::optional<rules::Compensation::Options> compensation_;
  double base_batch_ = 0, total_ = 0;
  std::array<double, kNumbers> state_{};
};

}  // namespace pliant::policy
