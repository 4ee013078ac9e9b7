#include "session/adaptation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "policy/action.h"

namespace pliant::session {
namespace {

constexpr std::size_t kMostSaved = 256 << 20;
constexpr std::uint64_t kCompareEvery = 64;  // steps, in a job of one

}  // namespace

void Adaptation::monitor(const MonitorOptions& options) {
  if (!(options.noise_memory > 0 && options.noise_memory < 1))
    throw Failure(Code::invalid, "noise_memory must be between 0 and 1");
  options_ = options;
  scale_ = monitor::NoiseScale(options.noise_memory);
}

void Adaptation::use(std::string name, PolicyPtr policy) {
  if (!policy) throw Failure(Code::invalid, "no policy");
  if (begun_) throw Failure(Code::invalid, "policies are added before session.steps()");
  if (board_.size() >= step::kMaxPolicies)
    throw Failure(Code::invalid, fmt::format("more than {} policies", step::kMaxPolicies));
  board_.add(std::move(name), std::move(policy));
}

Status Adaptation::use_named() {
  const char* text = std::getenv("PLIANT_POLICY");
  if (!text || std::exchange(named_, true)) return {};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    try {
      use(line, make_policy(line));
    } catch (const Failure& problem) {
      return Error{problem.code(), problem.what()};
    }
  }
  return {};
}

// ---- monitors ----

bool Adaptation::noise_due(std::uint64_t step) const {
  return options_.noise_scale != 0 && step % options_.noise_scale == 0;
}

bool Adaptation::comparison_due(std::uint64_t step) const {
  return options_.noise_scale != 0 && step % std::max(kCompareEvery, options_.noise_scale) < 2;
}

bool Adaptation::variance_due(std::uint64_t step) const {
  return options_.variance != 0 && step % options_.variance == 0;
}

bool Adaptation::parameter_norm_due(std::uint64_t step) const {
  return options_.parameter_norm != 0 && step % options_.parameter_norm == 0;
}

void Adaptation::observe(const std::optional<collective::Measured>& measured, const step::Summary& summary,
                         bool noise) {
  noise_.reset();
  gradient_norm_ = measured ? std::sqrt(measured->squares) : std::nan("");
  alone_ = {};
  if (!measured || !noise || summary.samples == 0) return;
  auto samples = static_cast<double>(summary.samples);
  noise_ = monitor::noise_of({measured->spread / samples, measured->squares, samples, summary.contributors});
  if (noise_) scale_.add(*noise_, summary.contributors);
}

void Adaptation::observe_alone(const collective::Measured& measured, double samples, double product) {
  noise_.reset();
  gradient_norm_ = std::sqrt(measured.squares);
  auto before = std::exchange(alone_, {measured.squares, samples});
  if (!(before.samples > 0) || !(samples > 0)) return;
  noise_ =
      monitor::noise_of(monitor::moments_of_two(before.squares, before.samples, measured.squares, samples, product));
  if (noise_) scale_.add(*noise_, 1, true);
}

void Adaptation::count(const step::Summary& summary) {
  auto seconds = summary.times.whole();
  auto now = seconds > 0 ? static_cast<double>(summary.samples) / seconds : 0;
  samples_per_second_ = samples_per_second_ > 0 ? 0.9 * samples_per_second_ + 0.1 * now : now;
}

// ---- policies ----

void Adaptation::fill(step::SummaryRow& row, double weight) {
  said_.clear();
  for (auto& answer : board_.take_answers()) {
    auto said = answer.action.empty() ? 0 : hash_name(policy::encode(answer.action));
    row.policies.push_back({said, std::move(answer.failure)});
    said_.push_back(std::move(answer.action));
    for (const auto& [name, value] : answer.numbers.values())
      if (row.logs.size() < step::kMaxLogs) row.logs.push_back({name, value, weight});
  }
}

void Adaptation::judge(const step::Summary& summary, std::uint64_t step, bool speaks) {
  std::vector<std::string> names;
  std::vector<Action> agreed;
  for (std::size_t i = 0; i < std::min(said_.size(), summary.policies.size()); ++i) {
    if (board_.dismissed(i)) continue;
    const auto& problem = summary.policies[i];
    if (problem.empty()) {
      names.push_back(board_.name(i));
      agreed.push_back(said_[i]);
      continue;
    }
    board_.dismiss(i);
    if (speaks) log::warn("policy '{}' is not asked any more: {}", board_.name(i), problem);
  }
  said_.clear();
  auto consensus = policy::reconcile(names, agreed);
  for (const auto& complaint : consensus.complaints)
    if (speaks) log::warn("step {}: {}", step, complaint);
  action_ = std::move(consensus.action);
  if (action_.rate_factor) rate_factor_ = *action_.rate_factor;
  stopped_ = stopped_ || action_.stop;
  if (action_.global_batch) batch_ = batch_of(*action_.global_batch);
  if (action_.local_batch) batch_ = batch_per_worker(*action_.local_batch);
  if (!speaks) return;
  auto text = std::exchange(action_.text, {});
  if (!action_.empty()) log::info("step {}: policies want {}", step, policy::describe(action_));
  if (!text.empty()) log::info("step {}: {}", step, text);
}

void Adaptation::begin(const StepReport& now) {
  if (std::exchange(begun_, true) || board_.empty()) return;
  board_.tell(now, {.train_begins = true, .epoch_begins = true, .step_begins = true});
}

void Adaptation::conclude(StepReport& report, bool last) {
  report.gradient_norm = gradient_norm_;
  report.samples_per_second = samples_per_second_;
  report.parameter_norm = std::exchange(parameter_norm_, std::nan(""));
  report.variances = std::exchange(variances_, {});
  if (!report.variances.empty())
    report.variance = std::accumulate(report.variances.begin(), report.variances.end(), 0.0);
  report.noise_scale = scale_.value();
  report.noise_variance = scale_.variance();
  report.noise_signal = scale_.signal();
  report.noise_biased = scale_.biased();
  if (board_.empty()) return;
  board_.tell(report, {.step_ended = true,
                       .epoch_ended = report.ends_epoch,
                       .train_ended = last,
                       .epoch_begins = report.ends_epoch && !last,
                       .step_begins = !last});
}

// ---- moving ----

std::string Adaptation::save() {
  ByteWriter out;
  for (double number : scale_.save()) out.put(number);
  out.put(rate_factor_);
  out.put(samples_per_second_);
  out.put(static_cast<std::uint8_t>(begun_ ? 1 : 0));
  out.put(static_cast<std::uint8_t>(stopped_ ? 1 : 0));
  out.put_text(policy::encode(batch_));
  out.put_text(board_.save());
  auto bytes = std::move(out).take();
  return {bytes.begin(), bytes.end()};
}

Status Adaptation::load(std::string_view saved) {
  ByteReader in({reinterpret_cast<const std::uint8_t*>(saved.data()), saved.size()});
  monitor::NoiseScale::Saved scale{};
  for (double& number : scale) number = in.get<double>();
  auto rate_factor = in.get<double>();
  auto samples_per_second = in.get<double>();
  bool begun = in.get<std::uint8_t>() != 0;
  bool stopped = in.get<std::uint8_t>() != 0;
  auto batch = policy::decode_action(in.get_text(kMostSaved));
  auto board = in.get_text(kMostSaved);
  if (!in.finished() || !batch.ok()) return Error{Code::protocol, "malformed luggage of monitors"};
  PLIANT_TRY(board_.load(board));
  scale_.load(scale);
  batch_ = std::move(batch).value();
  rate_factor_ = rate_factor;
  samples_per_second_ = samples_per_second;
  begun_ = begun;
  stopped_ = stopped;
  alone_ = {};
  noise_.reset();
  action_ = {};
  return {};
}

}  // namespace pliant::session
