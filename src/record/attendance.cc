// AttendanceRule and EndRule: who recorded what, up to when, and how it ended.
#include <fmt/format.h>

#include <algorithm>

#include "record/rules.h"

namespace pliant::record {
namespace {

/// Of a worker that is killed: the step it was closing with the others, and the step before, whose line waits for that.
constexpr std::uint64_t kMostUnwritten = 2;

/// Samples were dealt among the step's own view: so the members of that view are known.
bool tells_members(const StepRecord& step) { return step.version > 1 && step.lease.view == step.view; }

}  // namespace

void AttendanceRule::see(const StepLines& lines, const StepRecord& step) {
  if (!begun_ || step.lineage != lineage_) {
    workers_.clear();
    view_ = view_before_ = 0;
    lineage_ = step.lineage;
  }
  if (!begun_ || step.view > view_) {
    view_before_ = std::exchange(view_, step.view);
    view_began_ = step.step;
  }
  begun_ = true;
  present_.clear();
  for (const auto& line : lines) attend(lines, line);
  if (tells_members(step)) miss(step);
  last_step_ = step.step;
}

void AttendanceRule::attend(const StepLines& lines, const Entry& line) {
  const auto& record = line.record();
  auto& seen = workers_[record.worker];
  if (!present_.insert(record.worker).second) {
    auto other = std::ranges::find(lines, record.worker, [](const Entry& each) { return each.record().worker; });
    if (!record.by && !other->record().by)
      faults_.add(fmt::format("{}: worker {} has another line: {}", name_of(record), record.worker, line.where.text()));
    else if (!same_line(record, other->record()))
      faults_.add(
          fmt::format("{}: the line of worker {} that worker {} wrote ({}) is not the one that worker {} wrote ({})",
                      name_of(record), record.worker, record.writer(), line.where.text(), other->record().writer(),
                      other->where.text()));
    return;
  }
  if (seen.last) check_absence(seen, record);
  seen = {record.step, view_, 0, 0};
}

/// A worker that was away must have left in between: it was in a view before, is in this one from its beginning, and
/// there was a view between the two.
void AttendanceRule::check_absence(const Worker& last, const StepRecord& line) {
  if (*last.last >= last_step_) return;  // if others were away too, it is a gap
  bool left = view_ != last.view && (view_before_ != last.view || view_ > view_before_ + 1);
  auto missed = left ? std::max(*last.last + 1, view_began_) : *last.last + 1;
  if (missed < line.step)
    faults_.add(fmt::format("{}: worker {} did not record {}, although it was a member", name_of(line), line.worker,
                            steps_in_words(missed, line.step - 1)));
}

/// Counts the members without a line, and judges those who are members no longer.
void AttendanceRule::miss(const StepRecord& step) {
  const auto& members = step.lease.workers;
  for (auto worker : members) {
    if (present_.contains(worker)) continue;
    auto& seen = workers_[worker];
    ++seen.missed;
    seen.last_missed = step.step;
  }
  if (view_began_ != step.step && judged_view_ == step.view) return;
  judged_view_ = step.view;
  for (auto& [worker, seen] : workers_)
    if (std::ranges::find(members, worker) == members.end()) check_tail(worker, seen);
}

void AttendanceRule::check_tail(std::uint64_t worker, Worker& seen) {
  if (std::exchange(seen.missed, 0) <= kMostUnwritten) return;
  auto last = seen.last ? fmt::format("the records of worker {} end at step {}", worker, *seen.last)
                        : fmt::format("worker {} recorded nothing", worker);
  faults_.add(fmt::format("{}, although it was a member until step {}", last, seen.last_missed));
}

void AttendanceRule::finish(bool running) {
  if (running) return;
  for (auto& [worker, seen] : workers_) check_tail(worker, seen);
}

void EndRule::see(const StepLines& lines, const StepRecord& step) {
  last_ = step.place();
  version_ = step.version;
  present_.clear();
  // A line that somebody wrote for another, whose state it took over, is its own word.
  for (const auto& line : lines) present_.push_back(line.record().writer());
  members_ = tells_members(step) ? step.lease.workers : present_;
}

/// What the workers said about the end of the job after its last step. Programs that go out of their loops end the job
/// if all who made that step have ended.
std::optional<Outcome> EndRule::outcome(const std::vector<EndRecord>& ends) const {
  std::map<std::uint64_t, Outcome> said;  // by worker
  for (const auto& end : ends)            // of a later lineage: one that ended where it had begun
    if (end.lineage >= last_->first && end.steps == last_->second + 1) said.emplace(end.worker, end.outcome);
  auto says = [&](Outcome outcome) {
    return std::ranges::any_of(said, [&](const auto& end) { return end.second == outcome; });
  };
  for (auto outcome : {Outcome::finished, Outcome::stopped})
    if (says(outcome)) return outcome;
  auto fails = [&](std::uint64_t worker) { return said.contains(worker) && said.at(worker) == Outcome::failed; };
  if (std::ranges::any_of(present_, fails)) return Outcome::failed;
  bool all_ended = std::ranges::all_of(present_, [&](auto worker) { return said.contains(worker); });
  return all_ended && says(Outcome::quit) ? std::optional(Outcome::quit) : std::nullopt;
}

std::optional<Outcome> EndRule::finish(const std::vector<EndRecord>& ends, const std::set<std::uint64_t>& ended,
                                       std::optional<Outcome> told) {
  if (!last_) return std::nullopt;
  auto [lineage, step] = *last_;
  for (const auto& end : ends)
    if (end.lineage >= lineage && end.steps > step + 1 && end.outcome <= Outcome::stopped)
      faults_.add(fmt::format("worker {} says that the job {} after {} steps, but the records end at step {}",
                              end.worker, end.outcome == Outcome::finished ? "finished" : "was stopped", end.steps,
                              step));
  auto found = outcome(ends);
  if (!found && told == Outcome::stopped) {
    found = Outcome::stopped;
    notes_.add(fmt::format("the job was stopped at step {}, where none of its workers had the time to say so", step));
  }
  if (!found || found == Outcome::failed)
    open_.add(fmt::format("the records end at step {}; {}", step,
                          found          ? "the job failed there"
                          : version_ < 2 ? "they are of version 1 (Pliant 0.5), which does not say how a job ended"
                                         : "the job did not say that it finished or was stopped"));
  if (found == Outcome::finished && told == Outcome::failed) {
    found = Outcome::failed;
    notes_.add(
        fmt::format("the loop that ended at step {} was finished, but whoever ran the job says that it failed: its "
                    "programs failed, or were killed, after that loop",
                    step));
  }
  if (!found) return found;
  for (auto worker : members_)
    if (!ended.contains(worker) && std::ranges::find(ends, worker, &EndRecord::worker) == ends.end())
      notes_.add(fmt::format("worker {} was a member in the last step and did not say how it ended", worker));
  return found;
}

}  // namespace pliant::record
