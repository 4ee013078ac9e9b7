// ViewDriver: how a view is entered, and what a newcomer is given.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "session/checkpoint_draft.h"
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
  EntryReport own{standing(), training_.replicas.describe(), training_.reductions.lacking()};
  auto entries = step::exchange_entries(own, [&](std::string_view row) { return group.exchange(row); });
  if (!entries.ok()) return entries.error();
  Settled settled;
  std::vector<Report> reports;
  for (std::size_t rank = 0; rank < entries.value().size(); ++rank) {
    const auto& entry = entries.value()[rank];
    reports.push_back(entry.report);
    settled.lacking.insert(entry.missing.begin(), entry.missing.end());
    if (reports.back().layout == reports.front().layout) continue;
    // A newcomer that does not fit gives up, and its end is awaited; at a job's start nobody knows who is right.
    bool newcomers_fault = reports.back().blank && !training_.blank();
    return Error{newcomers_fault ? Code::peer_lost : Code::mismatch, misfit_in(entries.value(), rank)};
  }
  auto verdict = membership::settle(reports);
  if (!verdict.contradiction.empty()) return Error{Code::mismatch, verdict.contradiction};
  if (std::ranges::all_of(reports, &Report::blank)) {
    if (view.restarts > 0) {
      if (group.rank() == 0) begin_again(view);
      return settle_in(group, view);
    }
    if (training_.journal && !training_.journal->resume_dir().empty())
      return Error{Code::not_found, "nobody could begin from the checkpoint"};
    // Blank workers that vote are those who begin the job.
    if (!view.newcomers.empty()) return Error{Code::mismatch, "nobody in this view has the job's state"};
  }
  settled.step_complete = training_.turn.in_step() && verdict.step > training_.job.step;
  if (verdict.state_from < 0) {
    if (roster_) roster_->set_holds();
    return settled;
  }
  // State is given between two steps: whoever is still in one that is over ends it first, and the others wait.
  if (settled.step_complete)
    settled.owed = verdict;
  else
    PLIANT_TRY(hand_over(group, verdict));
  return settled;
}

/// All who held the job's state are gone: this worker begins with the checkpoint that the view names, and gives the
/// others what it has read.
void ViewDriver::begin_again(const View& view) {
  auto dir = journal_options().or_throw().checkpoint_dir;
  resume_from(training_, read_checkpoint(folder_of_step(dir, view.resume_step)).or_throw(), dir);
  training_.job.assignment = step::LeaseAssignment::even(view);
  training_.note_stripe();
}

Status ViewDriver::hand_over(collective::Group& group, const Verdict& verdict) {
  bool giving = group.rank() == verdict.state_from;
  std::string bytes;
  if (giving)
    bytes = encode(JobSnapshot{training_.job, training_.adaptation.save(), training_.replicas.items(),
                               training_.journal->unwritten()});
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
  PLIANT_TRY(training_.replicas.prepare(decoded.value().items));
  return decoded;
}

Status ViewDriver::take_up(JobSnapshot snapshot) {
  PLIANT_TRY(training_.adaptation.load(snapshot.adaptation));
  training_.job = std::move(snapshot.state);
  training_.journal->adopt(std::move(snapshot.unwritten));
  return {};
}

}  // namespace pliant::session
