#include <pliant/rules.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/result.h"

namespace pliant::rules {

Rule constant(double rate) {
  return Rule([rate](const Where&) { return rate; });
}

Rule linear_scaling(double base_batch) {
  if (!(base_batch > 0)) throw Failure(Code::invalid, "a base batch of no samples");
  return Rule([base_batch](const Where& where) { return where.batch / base_batch; });
}

Rule square_root_scaling(double base_batch) {
  if (!(base_batch > 0)) throw Failure(Code::invalid, "a base batch of no samples");
  return Rule([base_batch](const Where& where) { return std::sqrt(where.batch / base_batch); });
}

Rule warm_up(double epochs) {
  return Rule([epochs](const Where& where) {
    if (where.epoch >= epochs) return 1.0;
    auto workers = static_cast<double>(where.workers);
    return (where.epoch * (workers - 1) / epochs + 1) / workers;
  });
}

Rule warm_up_from(double from, double epochs) {
  return Rule([from, epochs](const Where& where) {
    return where.epoch >= epochs ? 1 : from + (1 - from) * where.epoch / epochs;
  });
}

Rule step_decay(std::vector<double> epochs, double factor) {
  std::ranges::sort(epochs);
  return Rule([epochs = std::move(epochs), factor](const Where& where) {
    auto passed = std::ranges::upper_bound(epochs, where.epoch) - epochs.begin();
    return std::pow(factor, static_cast<double>(passed));
  });
}

Rule poly_decay(double power) {
  return Rule([power](const Where& where) { return std::pow(std::max(0.0, 1 - where.progress), power); });
}

Rule cosine_decay(double last) {
  return Rule([last](const Where& where) {
    auto along = std::clamp(where.progress, 0.0, 1.0);
    return last + (1 - last) * (1 + std::cos(std::numbers::pi * along)) / 2;
  });
}

// ---- Dynamic SGD ----

void Compensation::change(std::uint64_t step, double batch) {
  if (!(batch > 0)) throw Failure(Code::invalid, "a batch of no samples");
  auto target = batch / base_;
  if (target == target_) return;
  auto now = step > 0 ? factor(step - 1) : from_;
  auto times = target / now;
  from_ = now;
  target_ = target;
  begun_ = step;
  auto usual = times <= 4 ? 8.0 : std::min(std::round(4 * times), 32.0);
  length_ = options_.ramp ? options_.ramp : static_cast<std::uint64_t>(usual);
  if (times <= 1 && !options_.literal) length_ = 0;
}

double Compensation::factor(std::uint64_t step) const {
  auto along = step + 1 - std::min(begun_, step + 1);  // the first step after a change is one step along
  if (along >= length_) return target_;
  return from_ + (target_ - from_) * static_cast<double>(along) / static_cast<double>(length_);
}

std::vector<double> Compensation::save() const {
  return {base_, from_, target_, static_cast<double>(begun_), static_cast<double>(length_)};
}

void Compensation::load(const std::vector<double>& saved) {
  if (saved.size() != 5) throw Failure(Code::mismatch, "this is not the state of a compensation");
  base_ = saved[0];
  from_ = saved[1];
  target_ = saved[2];
  begun_ = static_cast<std::uint64_t>(saved[3]);
  length_ = static_cast<std::uint64_t>(saved[4]);
}

// ---- AdaScale ----

void AdaScale::observe(double variance, double signal, double batch) {
  if (!std::isfinite(variance) || !std::isfinite(signal) || !(batch > 0)) return;
  auto times = batch / base_;
  // Of the base batch's gradient, and clipped before they are averaged, as published.
  auto new_variance = std::max(variance / base_, 1e-6);
  auto new_signal = std::max(signal, 0.0);
  auto memory = std::max(1 - times / 1000, 0.0);
  ++seen_;
  if (seen_ * (1 - memory) < 1) memory = (seen_ - 1) / seen_;  // a plain mean at first
  variance_ = memory * variance_ + (1 - memory) * new_variance;
  signal_ = memory * signal_ + (1 - memory) * new_signal;
  gain_ = (variance_ + signal_) / (variance_ / times + signal_);
}

std::vector<double> AdaScale::save() const { return {base_, variance_, signal_, seen_, gain_, steps_}; }

void AdaScale::load(const std::vector<double>& saved) {
  if (saved.size() != 6) throw Failure(Code::mismatch, "this is not the state of AdaScale");
  base_ = saved[0];
  variance_ = saved[1];
  signal_ = saved[2];
  seen_ = saved[3];
  gain_ = saved[4];
  steps_ = saved[5];
}

// ---- layer-wise ----

double layerwise_ratio(double weight_norm, double gradient_norm, const LayerwiseOptions& options) {
  if (weight_norm == 0 || gradient_norm == 0) return 1;
  return options.trust * weight_norm / (gradient_norm + options.weight_decay * weight_norm + options.epsilon);
}

double clipped_layerwise_ratio(double weight_norm, double gradient_norm, double rate, const LayerwiseOptions& options) {
  if (weight_norm == 0 || gradient_norm == 0) return 1;
  return std::min(layerwise_ratio(weight_norm, gradient_norm, options) / rate, 1.0);
}

}  // namespace pliant::rules
