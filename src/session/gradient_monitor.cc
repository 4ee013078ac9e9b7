#include "session/gradient_monitor.h"

#include <cmath>
#include <optional>

#include "collective/kernels.h"
#include "monitor/noise.h"

namespace pliant::session {

collective::Measure GradientMonitor::measure() const {
  const auto& adaptation = training_.adaptation;
  auto step = training_.job.step;
  return adaptation.noise_due(step) || adaptation.variance_due(step) ? collective::Measure::spread
                                                                     : collective::Measure::result;
}

void GradientMonitor::observe(bool alone) {
  auto& adaptation = training_.adaptation;
  const auto& summary = training_.turn.summary();
  auto step = training_.job.step;
  collective::Measured measured;
  bool any = false;
  bool compares = alone && adaptation.comparison_due(step);
  double product = 0;
  for (const auto& reduction : training_.reductions.all()) {
    const auto& task = reduction->task();
    if (!task.gradient) continue;
    any = true;
    measured += reduction->measured();
    if (!compares) continue;
    auto& last = last_gradient_[task.name];
    last.resize(task.count * size_of(task.dtype));
    product += collective::product_and_keep(task.dtype, last.data(), reduction->result(), task.count);
  }
  if (!alone) last_gradient_.clear();
  if (any && compares)
    adaptation.observe_alone(measured, static_cast<double>(summary.samples), product);
  else
    adaptation.observe(any ? std::optional(measured) : std::nullopt, summary, adaptation.noise_due(step));
  adaptation.set_variances(adaptation.variance_due(step) ? tensor_variances() : std::vector<double>());
}

/// Of one sample's gradient, by tensor: each worker has measured its slices of them, and here they are added up. Empty
/// if somebody's part is missing.
std::vector<double> GradientMonitor::tensor_variances() {
  std::vector<double> sums;  // by tensor: squares, spread; then how many elements were measured
  double counted = 0, all = 0;
  for (const auto& reduction : training_.reductions.all()) {
    const auto& task = reduction->task();
    if (!task.gradient) continue;
    all += static_cast<double>(task.count);
    const auto& parts = reduction->own_parts();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      auto at = 2 * static_cast<std::size_t>(task.tensors[i]);
      if (sums.size() < at + 2) sums.resize(at + 2);
      sums[at] += parts[i].measured.squares;
      sums[at + 1] += parts[i].measured.spread;
      counted += static_cast<double>(parts[i].count);
    }
  }
  if (sums.empty()) return {};
  sums.push_back(counted);
  wait_(training_.reductions.submit({.name = "~variances",
                                     .dtype = Dtype::f64,
                                     .op = Op::sum,
                                     .count = sums.size(),
                                     .in = sums.data(),
                                     .out = sums.data(),
                                     .caller_waits = true}));
  const auto& summary = training_.turn.summary();
  if (sums.back() != all || summary.contributors < 2 || summary.samples == 0) return {};
  std::vector<double> variances;
  auto samples = static_cast<double>(summary.samples);
  for (std::size_t i = 0; i + 2 < sums.size(); i += 2) {
    auto sample = monitor::noise_of({sums[i + 1] / samples, sums[i], samples, summary.contributors});
    variances.push_back(sample ? sample->variance : std::nan(""));
  }
  return variances;
}

}  // namespace pliant::session
