#include "base/metrics.h"

#include <fmt/format.h>

#include <cmath>

namespace pliant {

void Metrics::set(std::string_view name, double value) {
  std::lock_guard lock(mutex_);
  auto at = metrics_.find(name);
  if (std::isnan(value)) {
    if (at != metrics_.end()) metrics_.erase(at);
    return;
  }
  if (at == metrics_.end()) at = metrics_.emplace(name, Metric{}).first;
  at->second = {Kind::gauge, value};
}

void Metrics::add(std::string_view name, double by) {
  if (!(by >= 0)) return;
  std::lock_guard lock(mutex_);
  auto at = metrics_.find(name);
  if (at == metrics_.end()) at = metrics_.emplace(name, Metric{Kind::counter, 0}).first;
  at->second.kind = Kind::counter;
  at->second.value += by;
}

std::map<std::string, Metrics::Metric> Metrics::snapshot() const {
  std::lock_guard lock(mutex_);
  return {metrics_.begin(), metrics_.end()};
}

std::string Metrics::text(std::string_view prefix) const {
  std::string lines;
  for (const auto& [name, metric] : snapshot())
    lines += fmt::format("# TYPE {0}{1} {2}\n{0}{1} {3}\n", prefix, name,
                         metric.kind == Kind::counter ? "counter" : "gauge", metric.value);
  return lines;
}

}  // namespace pliant
