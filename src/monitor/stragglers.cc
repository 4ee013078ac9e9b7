#include "monitor/stragglers.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace pliant::monitor {
namespace {

double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::ranges::max_element(values.begin(), middle)) / 2;
}

}  // namespace

void Stragglers::add(const std::map<std::uint64_t, double>& rates) {
  std::erase_if(seen_, [&](const auto& entry) { return !rates.contains(entry.first); });
  std::vector<double> all;
  for (const auto& [worker, rate] : rates)
    if (rate > 0) all.push_back(rate);
  if (all.size() < 2) return;  // nobody to compare with
  auto usual = median(all);
  for (const auto& [worker, rate] : rates) {
    if (!(rate > 0)) continue;  // it had nothing to do
    auto& seen = seen_[worker];
    auto counted = ++seen.steps > options_.skip ? seen.steps - options_.skip : 0;
    if (counted == 0) continue;
    seen.speed = counted == 1 ? rate / usual : options_.memory * seen.speed + (1 - options_.memory) * rate / usual;
  }
}

std::vector<std::uint64_t> Stragglers::found() const {
  std::vector<std::uint64_t> slow;
  for (const auto& [worker, seen] : seen_)
    if (seen.steps >= options_.patience && seen.speed < options_.least) slow.push_back(worker);
  std::ranges::sort(slow, {}, [&](auto worker) { return seen_.at(worker).speed; });
  return slow;
}

double Stragglers::speed(std::uint64_t worker) const {
  auto at = seen_.find(worker);
  return at == seen_.end() ? 1 : at->second.speed;
}

std::string Stragglers::save() const {
  std::string text;
  for (const auto& [worker, seen] : seen_) text += fmt::format("{} {} {} ", worker, seen.speed, seen.steps);
  return text;
}

void Stragglers::load(std::string_view saved) {
  std::istringstream in{std::string(saved)};
  seen_.clear();
  std::uint64_t worker = 0;
  for (Seen seen; in >> worker >> seen.speed >> seen.steps;) seen_[worker] = seen;
}

}  // namespace pliant::monitor
