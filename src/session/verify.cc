// Two passes over a folder. The first looks at every line by itself and finds where each lineage begins, hence which
// lines a restart made void. The second merges the files by (lineage, step) and shows each step that counts to the
// rules. Only files whose workers are present at that step are open, one line of each in memory.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <queue>

#include "session/verify_rules.h"

namespace pliant::session {
namespace {

/// What the first pass learns.
struct Survey {
  struct File {
    RecordFile file;
    Place first;
  };
  std::vector<File> files;                          // those with steps in them
  std::map<std::uint64_t, std::uint64_t> lineages;  // where each begins
  std::uint64_t torn_lines = 0;
};

void survey_file(const RecordFile& file, Survey& survey, Faults& faults) {
  auto source = StepSource::open(file, &faults);
  if (!source) {
    faults.add(source.error().message);
    return;
  }
  bool first = true;
  while (auto entry = source.value().next()) {
    auto [lineage, step] = entry->place();
    if (std::exchange(first, false)) survey.files.push_back({file, entry->place()});
    auto& begin = survey.lineages.emplace(lineage, step).first->second;
    begin = std::min(begin, step);
  }
  survey.torn_lines += source.value().torn_lines();
}

/// For each lineage, the first step that a later one took back.
std::map<std::uint64_t, std::uint64_t> ends_of(const std::map<std::uint64_t, std::uint64_t>& lineages) {
  std::map<std::uint64_t, std::uint64_t> ends;
  auto end = kLargestNumber + 1;
  for (auto at = lineages.rbegin(); at != lineages.rend(); ++at) {
    ends[at->first] = end;
    end = std::min(end, at->second);
  }
  return ends;
}

/// The second pass: all files as one sequence of steps.
class Merge {
 public:
  Merge(const Survey& survey, Faults& faults) : survey_(survey), faults_(faults), ends_(ends_of(survey.lineages)) {
    for (std::size_t index = 0; index < survey.files.size(); ++index) waiting_.push({survey.files[index].first, index});
    sources_.resize(survey.files.size());
    heads_.resize(survey.files.size());
  }

  /// The lines of the next step that counts, by file; empty at the end.
  StepLines next() {
    StepLines lines;
    while (lines.empty() && !waiting_.empty()) {
      auto place = waiting_.top().first;
      while (!waiting_.empty() && waiting_.top().first == place) take(lines);
    }
    return lines;
  }

 private:
  using Waiting = std::pair<Place, std::size_t>;  // the place of a file's next line, and the file

  /// Takes the first waiting file's line, if it counts, and lets the file wait for its next.
  void take(StepLines& lines) {
    auto [place, index] = waiting_.top();
    waiting_.pop();
    if (!sources_[index] && !open(index)) return;
    if (place.second < ends_.at(place.first)) lines.push_back(std::move(*heads_[index]));
    advance(index);
  }
  /// False with a fault if the file is not any more what it was.
  bool open(std::size_t index) {
    const auto& [file, first] = survey_.files[index];
    auto source = StepSource::open(file, nullptr);
    if (source) heads_[index] = source.value().next();
    if (!heads_[index] || heads_[index]->place() != first) {
      faults_.add(source ? file.name + ": changed while it was read" : source.error().message);
      return false;
    }
    sources_[index] = std::make_unique<StepSource>(std::move(source).value());
    return true;
  }
  void advance(std::size_t index) {
    heads_[index] = sources_[index]->next();
    if (heads_[index] && ends_.contains(heads_[index]->place().first))
      waiting_.push({heads_[index]->place(), index});
    else
      sources_[index].reset();
  }

  const Survey& survey_;
  Faults& faults_;
  const std::map<std::uint64_t, std::uint64_t> ends_;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting_;
  std::vector<std::unique_ptr<StepSource>> sources_;  // open ones, by file
  std::vector<std::optional<Entry>> heads_;           // their lines in waiting
};

void judge(const Survey& survey, Faults& faults, Verification& seen) {
  GapRule gaps(faults);
  ViewRule views(faults);
  SampleRule samples(faults);
  ChangeLog changes;
  std::set<std::uint64_t> workers;
  Merge merge(survey, faults);
  for (auto lines = merge.next(); !lines.empty(); lines = merge.next()) {
    const auto& step = agreed(lines, faults).record();
    gaps.see(step);
    views.see(lines, step);
    samples.see(lines, step);
    changes.see(lines, step);
    for (const auto& line : lines) workers.insert(line.record().worker);
    ++seen.steps;
  }
  samples.finish();
  seen.epochs = samples.epochs();
  seen.samples = samples.samples();
  seen.workers = workers.size();
  seen.views = views.views();
  seen.changes = std::move(changes).take();
}

/// 1234567 -> "1,234,567".
std::string grouped(std::uint64_t number) {
  auto digits = fmt::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

std::string counted(std::uint64_t number, const char* what) {
  return fmt::format("{} {}{}", grouped(number), what, number == 1 ? "" : "s");
}

}  // namespace

std::string Verification::text() const {
  std::string lines;
  for (const auto& fault : faults) lines += fault + "\n";
  lines += fmt::format("{}: {}, ", ok ? "OK" : "FAULTY", counted(steps, "step"));
  if (samples > 0)
    lines +=
        fmt::format("{}, {}{}, ", counted(epochs, "epoch"), counted(samples, "sample"), ok ? " each used once" : "");
  lines += fmt::format("{}, {}, {}", counted(workers, "worker"), counted(views, "view"), counted(lineages, "lineage"));
  if (torn_lines > 0) lines += fmt::format(" ({} at the end of a file)", counted(torn_lines, "torn line"));
  return lines + "\n";
}

Result<Verification> verify_records(const std::string& dir) {
  Faults faults;
  auto files = list_record_files(dir, faults);
  if (!files) return files.error();
  Survey survey;
  for (const auto& file : files.value()) survey_file(file, survey, faults);
  Verification seen;
  seen.lineages = survey.lineages.size();
  seen.torn_lines = survey.torn_lines;
  judge(survey, faults, seen);
  seen.faults = std::move(faults).take();
  seen.ok = seen.faults.empty();
  if (seen.ok && seen.steps == 0) return Error{Code::not_found, fmt::format("{}: no records of steps", dir)};
  return seen;
}

}  // namespace pliant::session
