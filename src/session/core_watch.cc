// Core: what is seen of a step, and what is made of it: monitors, wishes, reports.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "policy/action.h"
#include "session/core.h"

namespace pliant::session {

rules::Where Core::where() const {
  auto used = ledger_ ? 1 - static_cast<double>(ledger_->left()) / static_cast<double>(ledger_->samples()) : 0;
  return {step_, static_cast<double>(epoch()) + used, progress(), static_cast<double>(global_batch()), size()};
}

collective::Measure Core::gradient_measure() const {
  return adaptation_.noise_due(step_) || variance_due() ? collective::Measure::spread : collective::Measure::result;
}

/// What was measured while the step's gradients were reduced.
void Core::watch_gradients() {
  collective::Measured measured;
  bool noise = adaptation_.noise_due(step_), any = false;
  bool alone = summary_.contributors == 1 && group_->size() == 1;
  bool compares = alone && adaptation_.comparison_due(step_);
  double product = 0;
  for (const auto& ticket : tickets_) {
    const auto& task = ticket->task();
    if (!task.gradient) continue;
    any = true;
    measured += ticket->measured();
    if (!compares) continue;
    auto& last = last_gradient_[task.name];
    last.resize(task.count * size_of(task.dtype));
    product += collective::product_and_keep(task.dtype, last.data(), ticket->result(), task.count);
  }
  if (!alone) last_gradient_.clear();
  if (any && compares)
    adaptation_.observe_alone(measured, static_cast<double>(summary_.samples), product);
  else
    adaptation_.observe(any ? std::optional(measured) : std::nullopt, summary_, noise);
  adaptation_.set_variances(variance_due() ? tensor_variances() : std::vector<double>());
}

/// Of one sample's gradient, by tensor: each worker has measured its slices of them, and here they are added up. Empty
/// if somebody's part is missing.
std::vector<double> Core::tensor_variances() {
  std::vector<double> sums;  // by tensor: squares, spread; then how many elements were measured, and how many there are
  double counted = 0, all = 0;
  for (const auto& ticket : tickets_) {
    const auto& task = ticket->task();
    if (!task.gradient) continue;
    all += static_cast<double>(task.count);
    const auto& parts = ticket->own_parts();
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
  wait(submit({.name = "~variances",
               .dtype = Dtype::f64,
               .op = Op::sum,
               .count = sums.size(),
               .in = sums.data(),
               .out = sums.data(),
               .caller_waits = true}));
  if (sums.back() != all || summary_.contributors < 2 || summary_.samples == 0) return {};
  std::vector<double> variances;
  auto samples = static_cast<double>(summary_.samples);
  for (std::size_t i = 0; i + 2 < sums.size(); i += 2) {
    auto sample = monitor::noise_of({sums[i + 1] / samples, sums[i], samples, summary_.contributors});
    variances.push_back(sample ? sample->variance : std::nan(""));
  }
  return variances;
}

/// Between two steps, on all workers alike.
void Core::act(const Action& action) {
  if (action.global_batch) plan_.global = *action.global_batch;
  if (action.local_batch) plan_.local = *action.local_batch, plan_.global = 0;
  if (auto share = action.shares.find(self_); share != action.shares.end()) set_workload(share->second);
  if (!speaks_for_job()) return;
  if (action.workers && roster_) roster_->ask_for(static_cast<std::uint32_t>(*action.workers), action.settled);
  if (action.replace && roster_) roster_->ask_to_replace(*action.replace);
  if ((action.workers || action.replace) && !roster_)
    log::warn("step {}: a policy wants {}, but nobody can start any", step_, policy::describe(action));
}

void Core::update_metrics() {
  metrics_.add("steps");
  metrics_.add("samples", static_cast<double>(report_.samples));
  metrics_.add("stall_seconds", times_.stall);
  metrics_.add("worker_seconds", report_.times.whole() * report_.size);
  for (auto [name, value] : {std::pair("epoch", static_cast<double>(report_.epoch)),
                             {"progress", report_.progress},
                             {"workers", static_cast<double>(report_.size)},
                             {"global_batch", static_cast<double>(report_.global_batch)},
                             {"rate", report_.rate},
                             {"gradient_norm", report_.gradient_norm},
                             {"parameter_norm", report_.parameter_norm},
                             {"noise_scale", report_.noise_scale.value_or(std::nan(""))},
                             {"gradient_variance", report_.variance},
                             {"samples_per_second", report_.samples_per_second},
                             {"compute_seconds", report_.times.compute},
                             {"exposed_seconds", report_.times.exposed},
                             {"input_seconds", report_.times.input}})
    metrics_.set(name, value);
}

StepReport Core::report_of_step() const {
  StepReport report;
  report.step = step_;
  report.epoch = epoch();
  report.ends_epoch = ledger_ && ledger_->left() <= global_batch();
  report.size = size();
  report.global_batch = global_batch();
  report.local_batch = report.global_batch / static_cast<std::uint64_t>(size());
  report.samples = summary_.samples;
  report.rate = rate_;
  report.times = summary_.times;
  report.averages = summary_.averages;
  for (std::size_t rank = 0; rank < summary_.speeds.size() && rank < closing_view_.members.size(); ++rank)
    report.speeds.push_back({closing_view_.members[rank].id, summary_.speeds[rank]});
  return report;
}

double Core::loss() const {
  auto at = averages_.find("loss");
  return at == averages_.end() ? std::nan("") : at->second;
}

void Core::report_progress() {
  if (!roster_ || !speaks_for_job()) return;
  wire::Progress progress;
  progress.step = step_;
  progress.view = closing_view_.epoch;
  progress.workers = static_cast<std::uint32_t>(closing_view_.size());
  progress.epoch = epoch();
  progress.epochs = options_.epochs;
  progress.steps = options_.steps ? options_.steps : options_.epochs * steps_per_epoch();
  progress.samples = samples_seen_;
  progress.samples_per_second = adaptation_.samples_per_second();
  progress.loss = std::nan("");
  for (const auto& [name, value] : averages_) {
    if (name == "loss")
      progress.loss = value;
    else if (progress.text.size() < 200)
      progress.text += fmt::format("{}{} {:.4g}", progress.text.empty() ? "" : "  ", name, value);
  }
  roster_->report(std::move(progress));
}

void Core::log(std::string_view name, double value) {
  if (name.empty() || name.size() > wire::kMaxName) throw Failure(Code::invalid, "a log needs a short name");
  if (logs_.size() >= kMaxLogs) throw Failure(Code::invalid, fmt::format("more than {} logs in a step", kMaxLogs));
  logs_.push_back({std::string(name), value, contribution()});
}

}  // namespace pliant::session
