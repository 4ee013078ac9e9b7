#include "apps/pliant/chaos_gaps.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <ranges>
#include <span>

namespace pliant::cli::chaos {
namespace {

constexpr double kWindow = 10;         // seconds after an event that are looked at
constexpr std::ptrdiff_t kAround = 8;  // intervals that begin before an event, of which the last ones may be open

struct Interval {
  double begin = 0, end = 0;
  double ms() const { return (end - begin) * 1e3; }
};

/// Between steps that follow each other, in their order.
std::vector<Interval> intervals_of(const StepTimes& steps) {
  std::vector<Interval> intervals;
  for (auto before = steps.begin(); before != steps.end() && std::next(before) != steps.end(); ++before) {
    auto after = std::next(before);
    if (after->first.first != before->first.first) continue;
    auto next = std::next(after);
    bool evaluates = next != steps.end() && next->second.epoch > after->second.epoch;
    if (!evaluates) intervals.push_back({before->second.t, std::max(before->second.t, after->second.t)});
  }
  std::ranges::sort(intervals, {}, &Interval::begin);
  return intervals;
}

}  // namespace

std::vector<std::optional<double>> gaps_after(const StepTimes& steps, const std::vector<double>& events) {
  auto intervals = intervals_of(steps);
  std::vector<std::optional<double>> gaps(events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    auto at = events[i];
    auto next = i + 1 < events.size() ? events[i + 1] : std::numeric_limits<double>::infinity();
    auto first = std::ranges::upper_bound(intervals, at, {}, &Interval::begin);
    first -= std::min(kAround, first - intervals.begin());
    for (const auto& interval : std::span(first, intervals.end())) {
      if (interval.begin > std::min(next, at + kWindow)) break;
      bool around = interval.begin <= at && interval.end > at;
      bool after = interval.begin > at && interval.end <= next;
      if (around || after) gaps[i] = std::max(gaps[i].value_or(0), interval.ms());
    }
  }
  return gaps;
}

double usual_step(const StepTimes& steps) {
  std::vector<double> all;
  for (const auto& interval : intervals_of(steps)) all.push_back(interval.ms());
  return all.empty() ? 0 : quantile(std::move(all), 0.5);
}

double quantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  auto rank = std::ceil(part * static_cast<double>(values.size()));
  auto at = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return values[std::min(at, values.size() - 1)];
}

}  // namespace pliant::cli::chaos
