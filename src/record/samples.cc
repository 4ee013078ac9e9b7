// SampleRule: which positions of which epoch were used when.
#include <fmt/format.h>

#include <algorithm>

#include "record/rules.h"

namespace pliant::record {
namespace {

constexpr std::size_t kHolesNamed = 5;

std::string in_words(std::uint64_t first_step, std::uint64_t last_step) {
  return first_step == last_step ? fmt::format("step {}", first_step)
                                 : fmt::format("one of the steps {} to {}", first_step, last_step);
}

struct Part {
  Range range;
  std::uint64_t worker = 0;
};

}  // namespace

std::string in_words(const Range& range) { return fmt::format("[{}, {})", range.begin, range.end); }

std::string in_words(const std::vector<Range>& ranges) {
  std::string words;
  for (std::size_t i = 0; i < ranges.size() && i <= kHolesNamed; ++i)
    words += (i > 0 ? ", " : "") + (i < kHolesNamed ? in_words(ranges[i]) : "…");
  return words.empty() ? "nothing" : words;
}

void SampleRule::see(const StepLines& lines, const StepRecord& record) {
  check_epochs(lines);
  auto ranges = ranges_of(record);
  std::uint64_t total = 0;
  for (const auto& range : ranges) total += range.size();
  if (total > record.global_batch)
    faults_.add(fmt::format("{}: {} samples in a global batch of {}", name_of(record), total, record.global_batch));
  if (record.dataset == 0 || !enter(record)) return;
  for (const auto& range : ranges) use(range, record.step);
  if (used_.size() >= join_at_) join_neighbours();
}

/// A step's samples are of its own epoch, whoever recorded it.
void SampleRule::check_epochs(const StepLines& lines) {
  auto other = std::ranges::find_if(lines, [](const Entry& line) { return line.record().other_epoch.has_value(); });
  if (other == lines.end()) return;
  faults_.add(fmt::format("{}: samples of epoch {} in a step of epoch {} ({})", name_of(other->record()),
                          *other->record().other_epoch, other->record().epoch, other->where.text()));
}

/// The step's positions inside the data set, sorted, disjoint and joined; the others are faults.
std::vector<Range> SampleRule::ranges_of(const StepRecord& step) {
  std::vector<Part> parts;
  for (const auto& [worker, ranges, by] : step.samples)
    for (const auto& range : ranges) {
      if (range.end > step.dataset)
        faults_.add(fmt::format("{}: positions {} of worker {} are beyond the data set of {}", name_of(step),
                                in_words(range), worker, step.dataset));
      else if (range.size() > 0)
        parts.push_back({range, worker});
    }
  std::ranges::stable_sort(parts, {}, [](const Part& part) { return part.range.begin; });
  std::vector<Range> joined;
  std::uint64_t before = 0;  // who has the end of joined.back()
  for (auto [range, worker] : parts) {
    if (!joined.empty() && range.begin < joined.back().end)
      faults_.add(fmt::format("{}: positions {} are used by worker {} and by worker {}", name_of(step),
                              in_words({range.begin, std::min(range.end, joined.back().end)}), before, worker));
    if (joined.empty() || range.begin > joined.back().end)
      joined.push_back(range);
    else
      joined.back().end = std::max(joined.back().end, range.end);
    if (joined.back().end == range.end) before = worker;
  }
  return joined;
}

/// Makes the step's epoch the current one. False if its samples cannot be counted.
bool SampleRule::enter(const StepRecord& step) {
  if (step.epoch < epoch_) {
    faults_.add(fmt::format("{} is of epoch {} although epoch {} has begun", name_of(step), step.epoch, epoch_));
    return false;
  }
  if (step.epoch > epoch_) begin_epoch(step);
  if (dataset_ == 0) dataset_ = step.dataset;
  if (dataset_ == step.dataset) return true;
  faults_.add(fmt::format("{}: the data set has {} samples, before it had {} in epoch {}", name_of(step), step.dataset,
                          dataset_, epoch_));
  return false;
}

void SampleRule::begin_epoch(const StepRecord& step) {
  auto missing = epoch_ + (dataset_ > 0 ? 1 : 0);  // the first that no step was of, if that is not this one
  close_epoch();
  if (missing < step.epoch)
    faults_.add(fmt::format("{} is of epoch {}, but no step was of epoch {}", name_of(step), step.epoch, missing));
  epoch_ = step.epoch;
}

/// The next epoch has begun: nothing may be left of this one.
void SampleRule::close_epoch() {
  if (dataset_ > 0 && covered_ == dataset_) ++epochs_;
  if (covered_ < dataset_)
    faults_.add(fmt::format("epoch {}: {} of {} positions were never used: {}", epoch_, dataset_ - covered_, dataset_,
                            first_holes()));
  used_.clear();
  dataset_ = covered_ = 0;
}

void SampleRule::finish() {
  if (dataset_ > 0 && covered_ == dataset_) ++epochs_;
}

std::string SampleRule::first_holes() const {
  std::string words;
  std::size_t holes = 0;
  std::uint64_t at = 0;
  auto hole = [&](std::uint64_t end) {
    if (at < end && ++holes <= kHolesNamed) words += (holes > 1 ? ", " : "") + in_words({at, end});
  };
  for (const auto& [begin, use] : used_) {
    hole(begin);
    at = use.end;
  }
  hole(dataset_);
  return holes > kHolesNamed ? words + ", …" : words;
}

/// Marks what of the range is still unused; the rest is a fault.
void SampleRule::use(Range range, std::uint64_t step) {
  auto at = used_.upper_bound(range.begin);
  if (at != used_.begin() && std::prev(at)->second.end > range.begin) --at;
  while (range.begin < range.end) {
    auto end = at == used_.end() ? range.end : std::min(range.end, std::max(at->first, range.begin));
    if (range.begin < end) {
      used_.emplace_hint(at, range.begin, Use{end, step, step});
      covered_ += end - range.begin;
      samples_ += end - range.begin;
      range.begin = end;
      continue;
    }
    end = std::min(range.end, at->second.end);
    faults_.add(fmt::format("epoch {}: positions {} are used in {} and again in step {}", epoch_,
                            in_words({range.begin, end}), in_words(at->second.first_step, at->second.last_step), step));
    range.begin = end;
    ++at;
  }
}

/// Keeps memory bounded however many steps an epoch has: a little of who used what when is forgotten.
void SampleRule::join_neighbours() {
  for (auto at = used_.begin(), next = std::next(at); next != used_.end(); next = std::next(at)) {
    if (at->second.end != next->first) {
      at = next;
      continue;
    }
    at->second.end = next->second.end;
    at->second.first_step = std::min(at->second.first_step, next->second.first_step);
    at->second.last_step = std::max(at->second.last_step, next->second.last_step);
    used_.erase(next);
  }
  join_at_ = std::max<std::size_t>(1 << 16, 2 * used_.size());
}

}  // namespace pliant::record
