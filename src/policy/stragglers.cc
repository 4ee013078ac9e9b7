#include "policy/stragglers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "base/result.h"

namespace pliant::policy {
namespace {

constexpr std::uint64_t kFirstPause = 100;  // steps in which a replacement may come
constexpr double kLeastShare = 0.05;
constexpr double kUsual = 0.05;    // who differs by less has the usual share
constexpr double kWorthIt = 0.02;  // a share that would change by less stays as it is

monitor::StragglerOptions detection_from(Options& options) {
  monitor::StragglerOptions detection;
  detection.least = options.number("least", detection.least);
  detection.memory = options.number("memory", detection.memory);
  detection.patience = options.count("patience", detection.patience);
  if (!(detection.least > 0 && detection.least < 1)) throw Failure(Code::invalid, "least must be between 0 and 1");
  if (!(detection.memory >= 0 && detection.memory < 1))
    throw Failure(Code::invalid, "memory must be from 0 to below 1");
  return detection;
}

}  // namespace

StragglerPolicy::StragglerPolicy(Options options)
    : remedy_(options.choice("remedy", {"replace", "share", "both"})),
      stragglers_(detection_from(options)),
      every_(options.count("every", 10)) {
  options.refuse_rest();
}

Action StragglerPolicy::after_step(const StepReport& seen) {
  std::map<std::uint64_t, double> rates;
  for (const auto& [worker, rate] : seen.speeds) rates[worker] = rate;
  stragglers_.add(rates);
  std::erase_if(shares_, [&](const auto& entry) { return !rates.contains(entry.first); });
  Action action;
  if (remedy_ != "replace") action.also(share_by_speed(seen));
  if (remedy_ != "share") action.also(replace_slowest(seen));
  return action;
}

/// One at a time. If nobody comes, it is asked again, each time after twice as long.
Action StragglerPolicy::replace_slowest(const StepReport& seen) {
  auto found = stragglers_.found();
  bool waits = slow_ && std::ranges::find(found, *slow_) != found.end();
  if (waits && seen.step < asked_ + pause_) return keep();
  if (!waits) pause_ = 0;
  slow_.reset();
  if (found.empty()) return keep();
  slow_ = found.front();
  asked_ = seen.step;
  bool again = std::exchange(pause_, pause_ ? pause_ * 2 : kFirstPause) != 0;
  auto action = replace(*slow_);
  if (!again)
    action.text = fmt::format("worker {} has {:.0f} % of the usual speed", *slow_, 100 * stragglers_.speed(*slow_));
  return action;
}

/// Everybody as much as they can do in the same time, as long as anybody is a straggler, and until nobody is.
Action StragglerPolicy::share_by_speed(const StepReport& seen) {
  bool due = seen.step >= shared_ + every_ || shares_.empty();
  if (!due || (stragglers_.found().empty() && shares_.empty())) return keep();
  std::map<std::uint64_t, double> wanted;
  bool differs = false;
  for (const auto& [worker, rate] : seen.speeds) {
    auto speed = std::clamp(stragglers_.speed(worker), kLeastShare, 1 / kLeastShare);
    auto share = std::abs(speed - 1) < kUsual ? 1 : std::round(speed * 100) / 100;
    auto now = shares_.contains(worker) ? shares_.at(worker) : 1;
    differs = differs || std::abs(share - now) > kWorthIt || (share == 1 && now != 1);
    wanted[worker] = share;
  }
  if (!differs) return keep();
  shares_ = wanted;
  shared_ = seen.step;
  return share_out(std::move(wanted));
}

std::string StragglerPolicy::save() const {
  auto text =
      fmt::format("{} {} {} {} {} {} ", slow_ ? 1 : 0, slow_.value_or(0), asked_, pause_, shared_, shares_.size());
  for (const auto& [worker, share] : shares_) text += fmt::format("{} {} ", worker, share);
  return text + stragglers_.save();
}

void StragglerPolicy::load(std::string_view saved) {
  std::istringstream in{std::string(saved)};
  bool slow = false;
  std::uint64_t who = 0;
  std::size_t shares = 0;
  in >> slow >> who >> asked_ >> pause_ >> shared_ >> shares;
  slow_ = slow ? std::optional(who) : std::nullopt;
  shares_.clear();
  for (std::uint64_t worker = 0; shares > 0 && in >> worker; --shares) in >> shares_[worker];
  std::string rest;
  std::getline(in, rest);
  stragglers_.load(rest);
}

}  // namespace pliant::policy
