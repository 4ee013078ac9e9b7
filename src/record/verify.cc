// Two passes over the logs. The first looks at every line by itself and finds where each lineage begins, hence which
// lines a restart made void. The second merges the logs by (lineage, step) and shows each step that counts to the
// rules. Only logs whose workers are present at that step are open, one line of each in memory.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <queue>

#include "record/files.h"
#include "record/line.h"
#include "record/rules.h"

namespace pliant::record {
namespace {

/// What the first pass learns.
struct Survey {
  struct Log {
    std::size_t index = 0;
    Place first;
  };
  struct Lineage {
    std::uint64_t first = 0;  // step
    int version = 1;
  };
  std::vector<Log> logs;                      // those with steps in them
  std::map<std::uint64_t, Lineage> lineages;  // those with steps
  std::vector<BeginRecord> begins;
  std::vector<EndRecord> ends;
  std::set<std::uint64_t> ended;  // workers whose processes an agent saw ending
  std::set<std::string> over;     // how the job ended, by the words of whoever ran it
  std::uint64_t torn_lines = 0;
};

void survey_log(const Logs& logs, std::size_t index, Survey& survey, Faults& faults) {
  Remarks remarks;
  auto source = StepSource::open(logs, index, &faults, &remarks);
  if (!source.ok()) {
    faults.add(source.error().message);
    return;
  }
  bool first = true;
  while (auto entry = source.value().next()) {
    auto [lineage, step] = entry->record().place();
    if (std::exchange(first, false)) survey.logs.push_back({index, entry->record().place()});
    auto& known = survey.lineages.try_emplace(lineage, Survey::Lineage{step, 1}).first->second;
    known.first = std::min(known.first, step);
    known.version = std::max(known.version, entry->record().version);
  }
  survey.torn_lines += source.value().torn_lines();
  survey.begins.insert(survey.begins.end(), remarks.begins.begin(), remarks.begins.end());
  if (remarks.end) survey.ends.push_back(*remarks.end);
  survey.ended.insert(remarks.ended_workers.begin(), remarks.ended_workers.end());
  if (!remarks.over.empty()) survey.over.insert(remarks.over);
}

/// Every lineage but the first began from a checkpoint, and somebody said so.
void check_begins(Survey& survey, Faults& faults) {
  for (auto& [number, lineage] : survey.lineages) {
    auto begin = std::ranges::find(survey.begins, number, &BeginRecord::lineage);
    if (begin == survey.begins.end()) {
      if (number > 0 && lineage.version > 1)
        faults.add(fmt::format("lineage {} has steps from {} on, but nobody recorded that it began from a checkpoint",
                               number, lineage.first));
      continue;
    }
    if (begin->steps > lineage.first)
      faults.add(fmt::format("lineage {} began with step {} but has step {}", number, begin->steps, lineage.first));
    lineage.first = std::min(lineage.first, begin->steps);
  }
}

/// A job that began again from a checkpoint may have ended there: nothing was left to do, or it was stopped at once.
void add_last_lineage(Survey& survey) {
  auto newest = survey.lineages.empty() ? 0 : survey.lineages.rbegin()->first;
  for (const auto& end : survey.ends) {
    auto begin = std::ranges::find(survey.begins, end.lineage, &BeginRecord::lineage);
    if (end.lineage > newest && begin != survey.begins.end() && begin->steps == end.steps)
      survey.lineages.try_emplace(end.lineage, Survey::Lineage{end.steps, 2});
  }
}

/// For each lineage, the first step that a later one took back.
std::map<std::uint64_t, std::uint64_t> ends_of(const std::map<std::uint64_t, Survey::Lineage>& lineages) {
  std::map<std::uint64_t, std::uint64_t> ends;
  auto end = kLargestNumber + 1;
  for (auto at = lineages.rbegin(); at != lineages.rend(); ++at) {
    ends[at->first] = end;
    end = std::min(end, at->second.first);
  }
  return ends;
}

/// The second pass: all logs as one sequence of steps.
class Merge {
 public:
  Merge(const Logs& logs, const Survey& survey, Faults& faults)
      : logs_(logs), survey_(survey), faults_(faults), ends_(ends_of(survey.lineages)) {
    for (std::size_t log = 0; log < survey.logs.size(); ++log) waiting_.push({survey.logs[log].first, log});
    sources_.resize(survey.logs.size());
    heads_.resize(survey.logs.size());
  }

  /// The lines of the next step that counts, by log; empty at the end. Valid until the next call.
  const StepLines& next() {
    for (auto log : taken_) advance(log);
    taken_.clear();
    lines_.clear();
    while (lines_.empty() && !waiting_.empty()) {
      auto place = waiting_.top().first;
      while (!waiting_.empty() && waiting_.top().first == place) take();
    }
    return lines_;
  }

 private:
  using Waiting = std::pair<Place, std::size_t>;  // the place of a log's next line, and the log

  /// Takes the first waiting log's line, if it counts.
  void take() {
    auto [place, log] = waiting_.top();
    waiting_.pop();
    if (!sources_[log] && !open(log)) return;
    if (place.second >= ends_.at(place.first)) return advance(log);
    lines_.push_back(*heads_[log]);
    taken_.push_back(log);
  }
  /// False with a fault if the log is not any more what it was.
  bool open(std::size_t log) {
    const auto& [index, first] = survey_.logs[log];
    auto source = StepSource::open(logs_, index, nullptr);
    if (source.ok()) heads_[log] = source.value().next();
    if (!heads_[log] || heads_[log]->record().place() != first) {
      faults_.add(source.ok() ? logs_.name(index) + ": changed while it was read" : source.error().message);
      return false;
    }
    sources_[log] = std::make_unique<StepSource>(std::move(source).value());
    return true;
  }
  void advance(std::size_t log) {
    heads_[log] = sources_[log]->next();
    if (heads_[log] && ends_.contains(heads_[log]->record().lineage))
      waiting_.push({heads_[log]->record().place(), log});
    else
      sources_[log].reset();
  }

  const Logs& logs_;
  const Survey& survey_;
  Faults& faults_;
  const std::map<std::uint64_t, std::uint64_t> ends_;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting_;
  std::vector<std::unique_ptr<StepSource>> sources_;  // open ones, by log
  std::vector<std::optional<Entry>> heads_;           // their lines in waiting
  StepLines lines_;
  std::vector<std::size_t> taken_;  // the logs that lines_ are of
};

void judge(const Logs& logs, const Survey& survey, Faults& faults, Faults& notes, Verification& seen) {
  GapRule gaps(faults);
  ChainRule chain(faults);
  LeaseRule leases(faults);
  ViewRule views(faults);
  AttendanceRule attendance(faults);
  SampleRule samples(faults);
  EndRule end(faults, seen.partial ? notes : faults, notes);
  ChangeLog changes;
  std::set<std::uint64_t> workers;
  Merge merge(logs, survey, faults);
  for (const auto* lines = &merge.next(); !lines->empty(); lines = &merge.next()) {
    const auto& step = agreed(*lines, faults).record();
    gaps.see(step);
    chain.see(*lines, step);
    views.see(*lines, step);
    attendance.see(*lines, step);
    leases.see(*lines, step);
    samples.see(*lines, step);
    end.see(*lines, step);
    changes.see(*lines, step);
    for (const auto& line : *lines) workers.insert(line.record().worker);
    ++seen.steps;
  }
  attendance.finish(seen.partial);
  samples.finish();
  auto told = survey.over.size() == 1 ? outcome_named(*survey.over.begin()) : std::nullopt;
  seen.outcome = end.finish(survey.ends, survey.ended, told);
  seen.epochs = samples.epochs();
  seen.samples = samples.samples();
  seen.workers = workers.size();
  seen.views = views.views();
  seen.changes = std::move(changes).take();
}

Verification verify_logs(const Logs& logs, const VerifyOptions& options, Faults faults) {
  Verification seen;
  seen.partial = options.partial;
  Survey survey;
  Faults notes;
  for (std::size_t index = 0; index < logs.size(); ++index) survey_log(logs, index, survey, faults);
  check_begins(survey, faults);
  add_last_lineage(survey);
  judge(logs, survey, faults, notes, seen);
  seen.lineages = survey.lineages.size();
  seen.torn_lines = survey.torn_lines;
  seen.faults = std::move(faults).take();
  seen.notes = std::move(notes).take();
  seen.ok = seen.faults.empty();
  return seen;
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
  for (const auto& note : notes) lines += "note: " + note + "\n";
  lines += fmt::format("{}: {}, ", ok ? outcome ? "OK" : "OK so far" : "FAULTY", counted(steps, "step"));
  if (samples > 0)
    lines +=
        fmt::format("{}, {}{}, ", counted(epochs, "epoch"), counted(samples, "sample"), ok ? " each used once" : "");
  lines += fmt::format("{}, {}, {}", counted(workers, "worker"), counted(views, "view"), counted(lineages, "lineage"));
  if (outcome) lines += fmt::format(", {}", name_of(*outcome));
  if (torn_lines > 0) lines += fmt::format(" ({} at the end of a file)", counted(torn_lines, "torn line"));
  return lines + "\n";
}

Verification verify(std::span<const MemoryLog> logs, const VerifyOptions& options) {
  return verify_logs(MemoryLogs(logs), options, {});
}

Result<Verification> verify_records(const std::string& dir, const VerifyOptions& options) {
  Faults faults;
  auto logs = FileLogs::open(dir, faults);
  if (!logs.ok()) return logs.error();
  auto seen = verify_logs(logs.value(), options, std::move(faults));
  if (seen.ok && seen.steps == 0) return Error{Code::not_found, fmt::format("{}: no records of steps", dir)};
  return seen;
}

}  // namespace pliant::record
