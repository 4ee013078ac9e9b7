// Runtime: how a step is closed and ends.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/planted.h"
#include "policy/action.h"
#include "session/runtime.h"

namespace pliant::session {

void Runtime::log(std::string_view name, double value) {
  if (name.empty() || name.size() > wire::kMaxName) throw Failure(Code::invalid, "a log needs a short name");
  if (training_.turn.logs() >= step::kMaxLogs)
    throw Failure(Code::invalid, fmt::format("more than {} logs in a step", step::kMaxLogs));
  training_.turn.log({std::string(name), value, contribution()});
}

void Runtime::fill_row() {
  auto& row = training_.turn.fill_row(training_.job);
  row.state_stripe = step() % Replicas::kStripes;
  row.state_digest = training_.stripe_digest;
  row.deal_digest = combine(training_.job.digest(), training_.job.assignment.to.members_hash());
  row.share = share_;
  training_.adaptation.fill(row, contribution());
}

/// Whoever is the last to be told to leave stays until those have its state who are on their way.
membership::Leaving Runtime::leaving(const Roster& roster) const {
  if (!roster.leaves()) return membership::Leaving::no;
  const auto& plan = training_.turn.named_plan();
  const bool grows =
      plan && std::ranges::any_of(plan->members, [&](const auto& m) { return view().rank_of(m.id) < 0; });
  return grows || roster.expects_somebody_back() ? membership::Leaving::once_relieved : membership::Leaving::yes;
}

/// What of the row may change between two attempts to close a step.
std::string Runtime::row_now() {
  auto& turn = training_.turn;
  turn.row().view_hash = view().hash();
  if (auto* roster = views_.roster()) {
    if (notice_ && notice_->given()) roster->leave_soon();
    turn.name_plan(roster->plan());
    turn.row().leaves = static_cast<std::uint64_t>(leaving(*roster));
  }
  return turn.encoded_row();
}

/// One attempt to close the step, in the current view.
Status Runtime::try_to_close() {
  auto& turn = training_.turn;
  auto& group = views_.group();
  turn.attempt_in(view());
  auto rows = group.exchange(row_now());
  if (!rows.ok()) return rows.error();
  turn.rows_here(std::move(rows).value());
  PLIANT_TRY(training_.reductions.wait_for_step());
  turn.reduced();
  if (!planted("unconfirmed")) PLIANT_TRY(group.confirm());
  turn.confirmed();
  return {};
}

void Runtime::close_surely() {
  training_.turn.close();
  while (!training_.turn.closed()) {
    auto tried = try_to_close();
    if (!tried.ok()) views_.go_on_after(tried.error());
  }
}

void Runtime::close_step() {
  check_usable();
  auto& turn = training_.turn;
  if (!turn.computing()) throw Failure(Code::invalid, "a step is closed once, inside a turn of session.steps()");
  if (training_.job.ledger && !turn.leased())
    throw Failure(Code::invalid, "sampler.next() was not called in this step");
  training_.replicas.begin_averaging(*this, contribution());
  fill_row();
  auto began = clock_.now();
  auto stalled = turn.timing().stalled;
  close_surely();
  turn.timing().exposed += clock_.now() - began - (turn.timing().stalled - stalled);
  training_.replicas.finish_averaging();
  const auto& summary = turn.conclude();
  const auto before = view().epoch;
  gradients_.observe(summary.contributors == 1 && views_.group().size() == 1);
  if (planted("absorbed-later") && view().epoch != before)
    PLIANT_ASSERT(summary.outlooks.size() == view().members.size());
  training_.reductions.forget_step();
  reporter_.set_averages(summary);
  views_.decide();
  training_.journal->stable(step(), reporter_.loss());
  training_.job.samples += summary.samples;
  training_.adaptation.count(summary);
}

/// Between two steps, on all workers alike.
void Runtime::act(const Action& action) {
  take_up_batch(training_.job, action);
  if (auto share = action.shares.find(worker()); share != action.shares.end()) set_workload(share->second);
  if (!views_.speaks_for_job()) return;
  auto* roster = views_.roster();
  if (action.workers && roster) roster->ask_for(static_cast<std::uint32_t>(*action.workers), action.settled);
  if (action.replace && roster) roster->ask_to_replace(*action.replace);
  if ((action.workers || action.replace) && !roster)
    log::warn("step {}: a policy wants {}, but nobody can start any", step(), policy::describe(action));
}

void Runtime::end_step() {
  auto& turn = training_.turn;
  auto& job = training_.job;
  auto& journal = *training_.journal;
  if (!turn.closed()) close_step();
  bool records = journal.records() && views_.counts();
  auto record = records ? turn.record(job, worker()) : record::StepRecord{};
  auto report = reporter_.report_of_step();
  turn.commit(job);
  training_.reductions.count_names_anew();
  report.progress = job.progress();
  if (views_.counts()) training_.adaptation.judge(turn.summary(), job.step - 1, views_.speaks_for_job());
  act(training_.adaptation.take_action());
  auto times = turn.end(job, clock_.now());
  training_.reductions.forget_done();
  training_.note_stripe();  // now: the next forward pass changes buffers before it is sent
  if (records) {
    record.t = platform_.unix_time();
    record.lr = reporter_.rate();
    record.digest.after = training_.stripe_digest;
    record.ledger.after = job.digest();
    record.stall_ms = times.stall * 1e3;
    journal.note(std::move(record));
  }
  if (views_.speaks_for_job() && journal.due(job.step))
    journal.checkpoint(position_of(training_, views_.roster() ? views_.roster()->job() : ""),
                       training_.replicas.items());
  training_.adaptation.conclude(report, training_.finished());
  reporter_.conclude(std::move(report));
  if (training_.finished()) finish_job();
  reporter_.tell_progress();
}

/// Nobody closes another step: bring the last logs and digest home.
void Runtime::finish_job() {
  fill_row();
  auto rows = views_.exchange([&] { return row_now(); });
  auto summary = step::fold_rows(rows, training_.turn.assignment().shares.size());
  reporter_.set_averages(summary);
  training_.adaptation.judge(summary, step(), views_.speaks_for_job());
  training_.journal->stable(step(), reporter_.loss());
}

}  // namespace pliant::session
