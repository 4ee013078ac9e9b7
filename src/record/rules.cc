#include "record/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/hash.h"

namespace pliant::record {
namespace {

std::string samples_in_words(const StepRecord& record) {
  std::uint64_t positions = 0;
  std::uint64_t digest = 0;
  for (const auto& part : record.samples) {
    digest = combine(combine(digest, part.worker), part.by ? mix64(*part.by + 1) : 0);
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
std::string lease_in_words(const StepRecord& record) {
  return fmt::format("view {} ({:016x}), workers {}", record.lease.view, record.lease.hash,
                     fmt::join(record.lease.workers, " "));
}

std::string hex_of(std::uint64_t value) { return fmt::format("{:016x}", value); }

constexpr Content kContents[] = {
    {"view", [](const StepRecord& record) { return fmt::to_string(record.view); }},
    {"view_hash", [](const StepRecord& record) { return hex_of(record.view_hash); }},
    {"size", [](const StepRecord& record) { return fmt::to_string(record.size); }},
    {"epoch", [](const StepRecord& record) { return fmt::to_string(record.epoch); }},
    {"dataset", [](const StepRecord& record) { return fmt::to_string(record.dataset); }},
    {"samples", samples_in_words},
    {"global_batch", [](const StepRecord& record) { return fmt::to_string(record.global_batch); }},
    {"delivered", [](const StepRecord& record) { return fmt::to_string(record.delivered); }},
    {"lease", lease_in_words},
    {"digest_before", [](const StepRecord& record) { return hex_of(record.digest.before); }},
    {"digest", [](const StepRecord& record) { return hex_of(record.digest.after); }},
    {"ledger_before", [](const StepRecord& record) { return hex_of(record.ledger.before); }},
    {"ledger_after", [](const StepRecord& record) { return hex_of(record.ledger.after); }},
};

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
  if (entries.size() == 1) return fmt::format("worker {} ({})", entries[0]->record().worker, entries[0]->where.text());
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

std::string steps_in_words(std::uint64_t first, std::uint64_t last) {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

std::string name_of(const StepRecord& record) {
  return record.lineage == 0 ? fmt::format("step {}", record.step)
                             : fmt::format("step {} of lineage {}", record.step, record.lineage);
}

bool same_content(const StepRecord& one, const StepRecord& other) {
  return one.view == other.view && one.view_hash == other.view_hash && one.size == other.size &&
         one.epoch == other.epoch && one.dataset == other.dataset && one.global_batch == other.global_batch &&
         one.delivered == other.delivered && one.digest == other.digest && one.ledger == other.ledger &&
         one.samples == other.samples && one.lease == other.lease;
}

bool same_line(const StepRecord& one, const StepRecord& other) {
  return one.worker == other.worker && one.rank == other.rank && one.took == other.took && same_content(one, other);
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

void ChainRule::see(const StepLines& lines, const StepRecord& step) {
  bool follows = begun_ && step.version > 1 && step.step == next_;
  bool changed_by_program = std::ranges::any_of(lines, [](const Entry& line) { return line.record().begins_loop; });
  if (follows && step.ledger.before != ledger_)
    faults_.add(
        fmt::format("{} begins with the ledger {:016x}, but step {} ended with {:016x}: the job was set to another "
                    "position between the two",
                    name_of(step), step.ledger.before, step.step - 1, ledger_));
  if (follows && !changed_by_program && step.digest.before != digest_)
    faults_.add(
        fmt::format("{} begins with the state {:016x}, but step {} ended with {:016x}: the state was reset or "
                    "changed between the two",
                    name_of(step), step.digest.before, step.step - 1, digest_));
  begun_ = step.version > 1;
  next_ = step.step + 1;
  ledger_ = step.ledger.after;
  digest_ = step.digest.after;
}

void LeaseRule::see(const StepLines& lines, const StepRecord& step) {
  for (const auto& entry : lines) {
    const auto& line = entry.record();
    if (line.version == 1) continue;
    auto part = std::ranges::find(step.samples, line.worker, &Contribution::worker);
    if (part == step.samples.end() ? line.took.empty() : line.took == part->ranges) continue;
    faults_.add(fmt::format("{}: worker {} took {}, but {} of it is counted ({})", name_of(step), line.worker,
                            in_words(line.took), part == step.samples.end() ? "nothing" : in_words(part->ranges),
                            entry.where.text()));
  }
}

}  // namespace pliant::record
