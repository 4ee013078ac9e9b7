#include "session/verify_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"

namespace pliant::session {
namespace {

/// "step 7", "steps 7 to 9".
std::string steps_in_words(std::uint64_t first, std::uint64_t last) {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

std::string samples_in_words(const StepRecord& record) {
  std::uint64_t positions = 0;
  std::uint64_t digest = 0;
  for (const auto& part : record.samples) {
    digest = combine(digest, part.worker);
    for (const auto& range : part.ranges) {
      positions += range.size();
      digest = combine(combine(digest, range.begin), range.end);
    }
  }
  return fmt::format("{} of {} workers, {:016x}", positions, record.samples.size(), digest);
}

/// What all workers must have recorded alike, each with its value in words: equal words, equal values.
struct Content {
  const char* name;
  std::string (*of)(const StepRecord&);
};
constexpr Content kContents[] = {
    {"view", [](const StepRecord& record) { return fmt::to_string(record.view); }},
    {"view_hash", [](const StepRecord& record) { return fmt::format("{:016x}", record.view_hash); }},
    {"size", [](const StepRecord& record) { return fmt::to_string(record.size); }},
    {"epoch", [](const StepRecord& record) { return fmt::to_string(record.epoch); }},
    {"dataset", [](const StepRecord& record) { return fmt::to_string(record.dataset); }},
    {"samples", samples_in_words},
    {"global_batch", [](const StepRecord& record) { return fmt::to_string(record.global_batch); }},
    {"digest", [](const StepRecord& record) { return fmt::format("{:016x}", record.digest); }},
};

bool same_samples(const std::vector<Contribution>& one, const std::vector<Contribution>& other) {
  return std::ranges::equal(one, other, [](const Contribution& a, const Contribution& b) {
    return a.worker == b.worker && a.ranges == b.ranges;
  });
}

bool same_content(const StepRecord& one, const StepRecord& other) {
  return one.view == other.view && one.view_hash == other.view_hash && one.size == other.size &&
         one.epoch == other.epoch && one.dataset == other.dataset && one.global_batch == other.global_batch &&
         one.digest == other.digest && same_samples(one.samples, other.samples);
}

/// The first of the largest set of lines with the same content.
const Entry& most_common(const StepLines& lines) {
  auto votes = [&](const Entry& candidate) {
    return std::ranges::count_if(lines,
                                 [&](const Entry& other) { return same_content(candidate.record(), other.record()); });
  };
  return *std::ranges::max_element(lines, {}, votes);
}

/// "worker 2 (worker-2.jsonl:8)", "workers 0, 1, 3".
std::string workers_in_words(const std::vector<const Entry*>& entries) {
  if (entries.size() == 1) return fmt::format("worker {} ({})", entries[0]->record().worker, entries[0]->where);
  std::string words;
  for (const auto* entry : entries) words += fmt::format("{}{}", words.empty() ? "" : ", ", entry->record().worker);
  return "workers " + words;
}

/// "step 7: digest differs: worker 2 (worker-2.jsonl:8) has 3c…, workers 0, 1, 3 have 5f…", or nothing.
void compare(const StepLines& lines, const Content& content, Faults& faults) {
  std::map<std::string, std::vector<const Entry*>> camps;
  for (const auto& line : lines) camps[content.of(line.record())].push_back(&line);
  if (camps.size() == 1) return;
  std::vector<std::pair<std::string, std::vector<const Entry*>>> sorted(camps.begin(), camps.end());
  std::ranges::stable_sort(sorted, {}, [](const auto& camp) { return camp.second.size(); });
  auto words = fmt::format("{}: {} differs:", name_of(lines[0].record()), content.name);
  for (const auto& [value, workers] : sorted)
    words += fmt::format("{} {} {} {}", words.back() == ':' ? "" : ",", workers_in_words(workers),
                         workers.size() == 1 ? "has" : "have", value);
  faults.add(std::move(words));
}

}  // namespace

std::string name_of(const StepRecord& record) {
  return record.lineage == 0 ? fmt::format("step {}", record.step)
                             : fmt::format("step {} of lineage {}", record.step, record.lineage);
}

const Entry& agreed(const StepLines& lines, Faults& faults) {
  bool same =
      std::ranges::all_of(lines, [&](const Entry& line) { return same_content(line.record(), lines[0].record()); });
  if (same) return lines[0];
  for (const auto& content : kContents) compare(lines, content, faults);
  return most_common(lines);
}

void GapRule::see(const StepRecord& step) {
  if (step.step > next_)
    faults_.add(fmt::format("{} recorded by nobody; the next one is {}",
                            steps_in_words(next_, step.step - 1) + (step.step - next_ == 1 ? " is" : " are"),
                            name_of(step)));
  next_ = step.step + 1;
}

void ViewRule::see(const StepLines& lines, const StepRecord& step) {
  if (!begun_ || step.lineage != lineage_) {
    begun_ = false;
    lineage_ = step.lineage;
    now_ = {};
    attendance_.clear();
  }
  bool usable = enter(step);
  for (const auto& line : lines) {
    if (usable && line.record().view == now_.number) seat(line.record());
    attend(line);
  }
  if (usable) check_room(step);
  if (usable) check_contributors(step);
  last_step_ = step.step;
}

/// Makes the step's view the current one. False if that cannot be.
bool ViewRule::enter(const StepRecord& step) {
  if (begun_ && step.view < now_.number) {
    faults_.add(fmt::format("{}: view {} after view {}", name_of(step), step.view, now_.number));
    return false;
  }
  if (!begun_ || step.view > now_.number) {
    before_ = std::move(now_);
    now_ = {step.view, step.view_hash, step.size, step.step, {}, {}, {}};
    begun_ = true;
    ++views_;
    if (step.size < 1) faults_.add(fmt::format("{}: view {} has no members", name_of(step), step.view));
  }
  if (step.view_hash != now_.hash)
    faults_.add(fmt::format("{}: view {} has the hash {:016x}, before it was {:016x}", name_of(step), step.view,
                            step.view_hash, now_.hash));
  if (step.size != now_.size)
    faults_.add(
        fmt::format("{}: view {} has {} members, before it had {}", name_of(step), step.view, step.size, now_.size));
  return true;
}

/// Gives the worker its rank, or finds that it cannot have it.
void ViewRule::seat(const StepRecord& line) {
  auto rank_in_words = fmt::format("{}: worker {} has rank {}", name_of(line), line.worker, line.rank);
  if (line.rank >= now_.size) {
    faults_.add(fmt::format("{} in view {} of {} members", rank_in_words, line.view, now_.size));
    return;
  }
  auto known = now_.ranks.find(line.worker);
  if (known != now_.ranks.end()) {
    if (known->second != line.rank)
      faults_.add(
          fmt::format("{}, before it had rank {} of the same view {}", rank_in_words, known->second, line.view));
    return;
  }
  auto [seat, free] = now_.workers.emplace(line.rank, line.worker);
  if (!free) {
    faults_.add(fmt::format("{} of view {}, which is worker {}'s", rank_in_words, line.view, seat->second));
    return;
  }
  now_.ranks.emplace(line.worker, line.rank);
  now_.believed.erase(line.worker);
}

/// Those who were believed to be members are not if others have filled the view.
void ViewRule::check_room(const StepRecord& step) {
  if (now_.known() <= static_cast<std::size_t>(std::max(now_.size, 0))) return;
  for (auto worker : now_.believed)
    faults_.add(
        fmt::format("{}: worker {} contributed to view {} but is not a member", name_of(step), worker, now_.number));
  now_.believed.clear();
}

void ViewRule::check_contributors(const StepRecord& step) {
  bool first = step.step == now_.first_step;  // perhaps settled after a death in the view before
  for (const auto& part : step.samples) {
    if (now_.knows(part.worker)) continue;
    if (first && (before_.knows(part.worker) || now_.number > before_.number + 1)) continue;
    if (now_.known() < static_cast<std::size_t>(std::max(now_.size, 0)))
      now_.believed.insert(part.worker);
    else
      faults_.add(fmt::format("{}: worker {} contributed but is not a member of view {}", name_of(step), part.worker,
                              now_.number));
  }
}

void ViewRule::attend(const Entry& line) {
  auto [seen, first] = attendance_.try_emplace(line.record().worker);
  if (!first && seen->second.step == line.record().step)
    faults_.add(
        fmt::format("{}: worker {} has another line: {}", name_of(line.record()), line.record().worker, line.where));
  else if (!first)
    check_absence(seen->second, line.record());
  seen->second = {line.record().step, now_.number};
}

/// A worker that was away must have left in between: it was in a view before, is in this one from its beginning, and
/// there was a view between the two.
void ViewRule::check_absence(const Attendance& last, const StepRecord& line) {
  if (last.step >= last_step_) return;  // if others were away too, it is a gap
  bool left = now_.number != last.view && (before_.number != last.view || now_.number > before_.number + 1);
  auto missed = left ? std::max(last.step + 1, now_.first_step) : last.step + 1;
  if (missed < line.step)
    faults_.add(fmt::format("{}: worker {} did not record {}, although it was a member", name_of(line), line.worker,
                            steps_in_words(missed, line.step - 1)));
}

}  // namespace pliant::session
