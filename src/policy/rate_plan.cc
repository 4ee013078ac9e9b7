#include "policy/rate_plan.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pliant::policy {
namespace {

template <class T>
void load(T& what, std::span<const double> from, std::size_t count) {
  what.load(std::vector<double>(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count)));
}

}  // namespace

void RatePlan::adascale(double base_batch, double total) {
  if (!(base_batch > 0)) throw Failure(Code::invalid, "a base batch of no samples");
  base_batch_ = base_batch;
  total_ = total;
}

RatePlan::Rate RatePlan::next(const rules::Where& where, const std::optional<monitor::NoiseSample>& noise, double own) {
  bool begun = std::exchange(state_[kBegun], 1) != 0;
  Rate rate;
  auto seen = where;
  if (base_batch_ > 0) {
    rules::AdaScale scale(base_batch_);
    auto saved = scale.save();
    if (begun) load(scale, std::span(state_).subspan(kAdaScale), saved.size());
    if (noise) scale.observe(noise->variance, noise->signal, where.batch);
    seen.step = static_cast<std::uint64_t>(scale.steps());
    if (total_ > 0) seen.progress = std::min(scale.steps() / total_, 1.0);
    rate.factor *= scale.gain();
    scale.advance();
    std::ranges::copy(scale.save(), state_.begin() + kAdaScale);
  }
  if (compensation_) {
    rules::Compensation compensation(where.batch, *compensation_);
    auto saved = compensation.save();
    if (begun) load(compensation, std::span(state_).subspan(kCompensation), saved.size());
    compensation.change(where.step, where.batch);
    rate.factor *= compensation.factor(where.step);
    std::ranges::copy(compensation.save(), state_.begin() + kCompensation);
  }
  rate.scheduled = rule_ ? (*rule_)(seen) : own;
  return rate;
}

bool RatePlan::done() const { return total_ > 0 && state_[kAdaScale + 5] >= total_; }

}  // namespace pliant::policy
