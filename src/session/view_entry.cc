// ViewDriver: how a view is entered, and what a newcomer is given.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/planted.h"
#include "session/view_driver.h"
#include "step/entry.h"
#include "step/snapshot.h"

namespace pliant::session {
namespace {

using membership::Report;
using membership::Verdict;
using membership::View;
using step::EntryReport;
using step::JobSnapshot;
using step::ReplicaTable;

std::string digest_row(const Replicas& replicas) { return fmt::format("{:016x}", replicas.digest()); }

std::string deviants_in(const std::vector<std::string>& rows) {
  std::vector<std::uint64_t> digests;
  for (const auto& row : rows) digests.push_back(std::strtoull(row.c_str(), nullptr, 16));
  return step::deviants(digests);
}

std::vector<int> givers_in(const std::vector<std::string>& rows) {
  std::vector<int> givers;
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    if (!rows[rank].empty()) givers.push_back(static_cast<int>(rank));
  return givers;
}

/// Who shares something else than the first: what is to be said of it.
std::string misfit_in(const std::vector<EntryReport>& entries, std::size_t rank) {
  return fmt::format("workers share different state: rank {} has {}, rank 0 has {}", rank, entries[rank].words,
                     entries[0].words);
}

/// The latest loop that somebody with state has begun; 0: nobody has any.
std::uint64_t latest_loop(const std::vector<EntryReport>& entries) {
  std::uint64_t latest = 0;
  for (const auto& entry : entries)
    if (!entry.report.blank) latest = std::max(latest, entry.loop);
  return latest;
}

/// The loop of somebody's checkpoint; 0: nobody has one.
std::uint64_t resumed_loop(const std::vector<EntryReport>& entries) {
  std::uint64_t loop = 0;
  for (const auto& entry : entries) loop = std::max(loop, entry.resumes_in);
  return loop;
}

/// Whoever is still in the step with which somebody else has begun a later loop is about to leave its own loop by
/// break: the step counts for nothing there either.
std::vector<Report> reports_in(const std::vector<EntryReport>& entries, std::uint64_t latest) {
  std::vector<Report> reports;
  for (const auto& entry : entries) reports.push_back(entry.report);
  for (std::size_t rank = 0; rank < entries.size(); ++rank) {
    auto abandons = [&](const EntryReport& other) {
      return !other.report.blank && other.loop == latest && other.report.step == reports[rank].step;
    };
    if (entries[rank].loop < latest && std::ranges::any_of(entries, abandons))
      reports[rank].in_step = reports[rank].complete = reports[rank].closed = false;
  }
  return reports;
}

std::string in_words(const StepsOptions& until) {
  return until.steps && until.epochs ? fmt::format("{} epochs or {} steps", until.epochs, until.steps)
         : until.epochs              ? fmt::format("{} epochs", until.epochs)
                                     : fmt::format("{} steps", until.steps);
}

}  // namespace

std::uint64_t ViewDriver::compare() {
  auto own = digest_row(training_.replicas);
  auto text = deviants_in(exchange([&] { return own; }));
  if (!text.empty()) throw Failure(Code::diverged, "replicas are not identical: " + text);
  return std::strtoull(own.c_str(), nullptr, 16);
}

Result<ViewDriver::Settled> ViewDriver::try_enter(const View& view, std::unique_ptr<collective::Group>& group) {
  int rank = view.rank_of(training_.self);
  collective::Team team{roster_ ? roster_->job() : "", view.hash(), view.members, rank, membership::notice_of(view)};
  if (roster_) {
    team.has_ended = [this] { return roster_->must_change(); };
    roster_->took(view);
  }
  auto formed = roster_ ? roster_->form(std::move(team)) : training_.platform.group_of_one(std::move(team));
  if (!formed.ok()) return formed.error();
  auto made = std::move(formed).value();
  if (roster_) roster_->guard(made.get());
  auto settled = training_.started() ? settle_in(*made, view) : Settled();
  if (settled.ok())
    group = std::move(made);
  else if (roster_)
    roster_->guard(nullptr);
  return settled;
}

Report ViewDriver::standing() const {
  const auto& turn = training_.turn;
  Report own;
  own.blank = training_.blank();
  own.step = training_.job.step;
  own.in_step = turn.in_step();
  own.complete = turn.complete();
  own.closed = turn.closed();
  own.layout = training_.replicas.layout();
  return own;
}

Result<ViewDriver::Settled> ViewDriver::settle_in(collective::Group& group, const View& view) {
  resume_if_due(view);
  EntryReport own{standing(), training_.job.loop, training_.resumes_in(), training_.replicas.describe(),
                  training_.reductions.lacking()};
  auto entries = step::exchange_entries(own, [&](std::string_view row) { return group.exchange(row); });
  if (!entries.ok()) return entries.error();
  Settled settled;
  settled.loop = planted("first-loop") ? training_.job.loop : latest_loop(entries.value());
  auto reports = reports_in(entries.value(), settled.loop);
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto& entry = entries.value()[rank];
    settled.lacking.insert(entry.missing.begin(), entry.missing.end());
    if (entry.report.layout == reports.front().layout) continue;
    // A newcomer that does not fit gives up, and its end is awaited; at a job's start nobody knows who is right.
    bool newcomers_fault = entry.report.blank && !training_.blank();
    return Error{newcomers_fault ? Code::peer_lost : Code::mismatch, misfit_in(entries.value(), rank)};
  }
  auto verdict = membership::settle(reports);
  if (!verdict.contradiction.empty()) return Error{Code::mismatch, verdict.contradiction};
  if (std::ranges::all_of(reports, &Report::blank)) {
    if (auto loop = resumed_loop(entries.value()); loop > 0) return await_resumption(group, view, loop);
    if (view.restarts > 0) {
      if (group.rank() == 0) begin_again(view);
      return settle_in(group, view);
    }
    if (training_.journal && !training_.journal->resume_dir().empty())
      return Error{Code::not_found, "nobody could begin from the checkpoint"};
    // Blank workers that vote are those who begin the job.
    if (!view.newcomers.empty()) return Error{Code::mismatch, "nobody in this view has the job's state"};
  }
  // Whoever has begun a later loop has gone past everything that this worker is in.
  bool in_earlier_loop = training_.job.loop < settled.loop;
  settled.step_complete = training_.turn.in_step() && (verdict.step > training_.job.step || in_earlier_loop);
  if (planted("commits-alone")) settled.step_complete = training_.turn.complete();
  if (planted("repeats-alone") && training_.turn.closing()) settled.step_complete = false;
  if (verdict.state_from < 0) {
    if (roster_) roster_->set_holds();
    return settled;
  }
  if (training_.blank() && settled.loop > 0 && training_.job.loop > settled.loop) return too_late_for(settled.loop);
  // State is given between two steps of the loop that the job is in: whoever is still in a step that is over, or in an
  // earlier loop, ends that first, and the others wait.
  if (settled.step_complete || in_earlier_loop)
    settled.given_later = verdict;
  else
    PLIANT_TRY(hand_over(group, verdict));
  return settled;
}

/// All who held the job's state are gone: this worker begins with the checkpoint that the view names, and gives the
/// others what it has read.
void ViewDriver::begin_again(const View& view) {
  auto& platform = training_.platform;
  auto dir = journal_options(platform).or_throw().checkpoint_dir;
  training_.resumption = {platform.checkpoints().read(dir, view.resume_step).or_throw(), dir};
}

void ViewDriver::resume_if_due(const View& view) {
  if (!training_.resumption || !training_.blank() || training_.resumes_in() > training_.job.loop) return;
  auto due = std::exchange(training_.resumption, std::nullopt);
  resume_from(training_, due->from, due->dir);
  training_.job.assignment = step::LeaseAssignment::even(view);
  training_.note_stripe();
}

/// Nobody has the state before all are in the loop that the checkpoint was made in: there they settle again. A worker
/// whose program is in an earlier one passes that by first.
Result<ViewDriver::Settled> ViewDriver::await_resumption(collective::Group& group, const View& view,
                                                         std::uint64_t loop) {
  if (training_.job.loop > loop) return too_late_for(loop);
  if (training_.job.loop == loop) return settle_in(group, view);
  Settled settled;
  settled.loop = loop;
  return settled;
}

Error ViewDriver::too_late_for(std::uint64_t loop) const {
  return {Code::mismatch, fmt::format("the job is in loop {} of the program, this worker is in loop {} already", loop,
                                      training_.job.loop)};
}

Status ViewDriver::hand_over(collective::Group& group, const Verdict& verdict) {
  bool giving = group.rank() == verdict.state_from;
  std::string bytes;
  if (giving)
    bytes = encode(
        JobSnapshot{training_.job, training_.adaptation.save(), training_.replicas.items(),
                    planted("unwritten-kept") ? std::vector<record::StepRecord>() : training_.journal->unwritten(),
                    training_.journal->begins_loop()});
  // Whoever has the state says so, and how long its snapshot is.
  auto rows = group.exchange(giving || !training_.blank() ? std::to_string(bytes.size()) : "");
  if (!rows.ok()) return rows.error();
  bytes.resize(std::strtoull(rows.value()[static_cast<std::size_t>(verdict.state_from)].c_str(), nullptr, 10));
  auto copied = group.submit({.name = "~snapshot",
                              .dtype = Dtype::u8,
                              .op = Op::sum,
                              .count = bytes.size(),
                              .in = bytes.data(),
                              .out = bytes.data(),
                              .weight = giving ? 1.0 : 0.0,
                              .caller_waits = true});
  if (!copied.ok()) return copied.error();
  PLIANT_TRY(group.wait(copied.value()));
  // A draft, until the state that belongs to it has come and compares equal.
  bool receive = training_.blank() && !giving;
  std::optional<JobSnapshot> draft;
  if (receive) {
    auto checked = check(bytes);
    if (!checked.ok()) return checked.error();
    draft = std::move(checked).value();
    if (planted("draft-at-once")) training_.replica.on(ReplicaTable::given);
  }
  PLIANT_TRY(training_.replicas.copy_from(group, givers_in(rows.value()), receive));
  auto digests = group.exchange(digest_row(training_.replicas));
  if (!digests.ok()) return digests.error();
  if (auto text = deviants_in(digests.value()); !text.empty())
    return Error{Code::diverged, "state was not copied as it is: " + text};
  if (draft) PLIANT_TRY(take_up(std::move(*draft)));
  if (training_.blank()) training_.replica.on(ReplicaTable::given);
  if (roster_) roster_->set_holds();
  training_.note_stripe();
  return {};
}

Result<JobSnapshot> ViewDriver::check(const std::string& bytes) {
  auto decoded = step::decode_snapshot(bytes);
  if (!decoded.ok()) return decoded;
  const auto& own = training_.job.ledger;
  const auto& theirs = decoded.value().state.ledger;
  if (theirs.has_value() != own.has_value() || (own && own->samples() != theirs->samples()))
    return Error{Code::mismatch, fmt::format("the job's data set has {} samples, this worker's has {}",
                                             theirs ? theirs->samples() : 0, own ? own->samples() : 0)};
  const auto& state = decoded.value().state;
  const auto& until = training_.job.until;
  if (state.loop == training_.job.loop && (state.until.epochs != until.epochs || state.until.steps != until.steps))
    return Error{Code::mismatch, fmt::format("loop {} of the job makes {}, this worker's makes {}", state.loop,
                                             in_words(state.until), in_words(until))};
  PLIANT_TRY(training_.replicas.prepare(decoded.value().items));
  return decoded;
}

Status ViewDriver::take_up(JobSnapshot snapshot) {
  PLIANT_TRY(training_.adaptation.load(snapshot.adaptation));
  auto& job = training_.job;
  // Whoever gave the state is about to begin it.
  if (snapshot.state.loop < job.loop || snapshot.begins_loop) training_.journal->begin_loop();
  snapshot.state.loop = job.loop;
  snapshot.state.until = job.until;
  if (planted("ledger-kept")) snapshot.state.ledger = job.ledger;
  job = std::move(snapshot.state);
  training_.resumption.reset();
  training_.reductions.count_names_anew();
  training_.journal->adopt(std::move(snapshot.unwritten));
  return {};
}

}  // namespace pliant::session
