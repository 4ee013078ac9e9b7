#include "session/reporter.h"

#include <fmt/format.h>

#include <utility>

namespace pliant::session {

void Reporter::set_averages(const step::Summary& summary) {
  if (!summary.averages.empty()) averages_ = summary.averages;
}

double Reporter::loss() const {
  auto at = averages_.find("loss");
  return at == averages_.end() ? std::nan("") : at->second;
}

StepReport Reporter::report_of_step() const {
  const auto& job = training_.job;
  const auto& turn = training_.turn;
  const auto& summary = turn.summary();
  StepReport report;
  report.step = job.step;
  report.epoch = job.epoch();
  report.size = turn.size();
  report.global_batch = job.global_batch(turn.size());
  report.ends_epoch = job.ledger && job.ledger->left() <= report.global_batch;
  report.local_batch = report.global_batch / static_cast<std::uint64_t>(turn.size());
  report.samples = summary.samples;
  report.rate = rate_;
  report.times = summary.times;
  report.averages = summary.averages;
  const auto& members = turn.closing_view().members;
  for (std::size_t rank = 0; rank < summary.speeds.size() && rank < members.size(); ++rank)
    report.speeds.push_back({members[rank].id, summary.speeds[rank]});
  return report;
}

void Reporter::conclude(StepReport report) {
  report_ = std::move(report);
  metrics_.add("steps");
  metrics_.add("samples", static_cast<double>(report_.samples));
  metrics_.add("stall_seconds", training_.turn.last_times().stall);
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

void Reporter::tell_progress() {
  auto* roster = views_.roster();
  if (!roster || !views_.speaks_for_job()) return;
  const auto& job = training_.job;
  const auto& closing = training_.turn.closing_view();
  wire::Progress progress;
  progress.step = job.step;
  progress.view = closing.epoch;
  progress.workers = static_cast<std::uint32_t>(closing.size());
  progress.epoch = job.epoch();
  progress.epochs = job.until.epochs;
  auto batch = job.global_batch(training_.turn.size());
  auto per_epoch = job.ledger ? (job.ledger->samples() + batch - 1) / batch : 0;
  progress.steps = job.until.steps ? job.until.steps : job.until.epochs * per_epoch;
  progress.samples = job.samples;
  progress.samples_per_second = training_.adaptation.samples_per_second();
  progress.loss = std::nan("");
  for (const auto& [name, value] : averages_) {
    if (name == "loss")
      progress.loss = value;
    else if (progress.text.size() < 200)
      progress.text += fmt::format("{}{} {:.4g}", progress.text.empty() ? "" : "  ", name, value);
  }
  roster->report(std::move(progress));
}

}  // namespace pliant::session
