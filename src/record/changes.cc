#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "record/rules.h"

namespace pliant::record {
namespace {

std::string who(const std::vector<std::uint64_t>& workers, const char* sign) {
  return workers.empty() ? "" : fmt::format("{}{}", sign, fmt::join(workers, fmt::format(" {}", sign)));
}

}  // namespace

double ChangeLog::usual() const {
  if (gaps_.empty()) return 0;
  auto sorted = gaps_;
  auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void ChangeLog::see(const StepLines& lines, const StepRecord& step) {
  std::map<std::uint64_t, double> now;
  double gap = 0;
  for (const auto& line : lines) {
    now[line.record().worker] = line.record().t;
    if (auto before = last_.find(line.record().worker); before != last_.end())
      gap = std::max(gap, (line.record().t - before->second) * 1e3);
  }
  bool first = last_.empty();
  if (!first && step.view != view_ && changes_.size() < kMost) {
    Change change{step.step, step.view, step.size, {}, {}, gap, usual()};
    for (const auto& [worker, t] : now)
      if (!present_.contains(worker)) change.came.push_back(worker);
    for (auto worker : present_)
      if (!now.contains(worker)) change.gone.push_back(worker);
    changes_.push_back(std::move(change));
    present_.clear();
  } else if (!first) {
    if (gaps_.size() < kUsual) gaps_.push_back(gap);
    gaps_[next_++ % gaps_.size()] = gap;
  }
  view_ = step.view;
  for (const auto& [worker, t] : now) present_.insert(worker);
  last_ = std::move(now);
}

std::string Verification::changes_text() const {
  if (changes.empty()) return "no change of workers\n";
  auto text = fmt::format("{:>8} {:>6} {:>8}  {:<18} {:>12} {:>12}\n", "step", "view", "workers", "who", "gap, ms",
                          "beyond usual");
  for (const auto& change : changes) {
    auto names = who(change.came, "+");
    auto gone = who(change.gone, "-");
    if (!names.empty() && !gone.empty()) names += " ";
    text += fmt::format("{:>8} {:>6} {:>8}  {:<18} {:>12.1f} {:>12.1f}\n", change.step, change.view, change.size,
                        names + gone, change.gap_ms, change.gap_ms - change.usual_ms);
  }
  return text;
}

}  // namespace pliant::record
