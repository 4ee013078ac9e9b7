#include "session/view_driver.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/planted.h"

namespace pliant::session {
namespace {

using membership::View;
using step::ViewTable;

/// What is in flight when a view ends is submitted again in the next: it must fit there.
constexpr std::size_t kMostInFlight = 4096;

}  // namespace

ViewDriver::ViewDriver(Training& training, std::unique_ptr<Roster> roster, std::function<void()> on_change)
    : training_(training),
      roster_(std::move(roster)),
      on_change_(std::move(on_change)),
      clock_(training.platform.clock()),
      reclaimer_(training.platform.reclaimer()),
      place_(ViewTable::changing, training.platform.transitions()) {}

ViewDriver::~ViewDriver() {
  if (roster_) roster_->guard(nullptr);
}

bool ViewDriver::speaks_for_job() const {
  return view_.rank_of(training_.self) == 0 && (!roster_ || roster_->is_member()) && !awaits_loop();
}

// ---- into the job ----

Status ViewDriver::found(const View& view) {
  view_ = view;
  training_.job.assignment = step::LeaseAssignment::even(view);
  training_.turn.place(training_.job.assignment, view.rank_of(training_.self));
  place_.on(ViewTable::view_decided);
  auto settled = try_enter(view, group_);
  if (settled.ok()) {
    training_.reductions.use(group_.get());
    place_.on(ViewTable::settled);
    return {};
  }
  if (settled.error().code != Code::peer_lost || !roster_) return settled.error();
  place_.on(ViewTable::view_ended);  // somebody has died since the view was made
  enter();
  return {};
}

void ViewDriver::begin_inside(const View& view) {
  training_.job.assignment = step::LeaseAssignment::even(view);
  training_.turn.place(training_.job.assignment, view.rank_of(training_.self));
  enter();
}

void ViewDriver::begin_outside() {
  place_ = step::Machine<ViewTable>(ViewTable::outside, training_.platform.transitions());
  stand_outside();
}

void ViewDriver::settle_down() {
  if (!counts()) return between_steps();
  if (roster_) provide();
  if (!roster_ || !roster_->must_change()) {
    auto settled = settle_in(*group_, view_);
    if (!settled.ok()) return go_on_after(settled.error());
    if (is_early(settled.value())) step_aside(std::move(settled).value());
    return;
  }
  place_.on(ViewTable::view_ended);
  enter();
}

/// Collectives of a worker that is in no view are its own affair.
void ViewDriver::be_alone() {
  if (roster_) roster_->guard(nullptr);
  view_ = {0, 1, training_.job.seed, 0, {{training_.self, getpid(), ""}}};
  auto alone = training_.platform.group_of_one({"", view_.hash(), view_.members, 0, {}}).or_throw();
  auto& reductions = training_.reductions;
  reductions.take_stock();  // what was going on alone before goes on too
  auto ended = std::exchange(group_, std::move(alone));
  reductions.use(group_.get());
  // Results that are in use are read until their holders know where the new ones are.
  auto before = reductions.renew_regions();
  reductions.go_on_alone(training_.turn.fate(false));
  on_change_();
}

/// Between two steps. It is never rank 0 of a job that it is not in.
void ViewDriver::stand_outside() {
  be_alone();
  int rank = std::max(1, static_cast<int>(std::min<std::uint64_t>(training_.self, 1 << 20)));
  training_.turn.place({view_, step::Shares(static_cast<std::size_t>(rank) + 1, step::kUsualShare)}, rank);
}

// ---- in a step ----

void ViewDriver::go_on_after(const Error& error) {
  if (error.code != Code::peer_lost) throw Failure(error.code, error.message);
  if (group_->full() && training_.reductions.all().size() > kMostInFlight)
    throw Failure(Code::invalid,
                  fmt::format("more than {} reductions are in flight, and {}", kMostInFlight, error.message));
  // All have stopped, and no view follows, or this worker is in none: what it reduces is its own affair.
  if (over() || left() || !counts() || awaits_loop()) return be_alone();
  if (!roster_) return enter_anew();
  if (group_->full()) roster_->end_view(view_);
  place_.on(ViewTable::view_ended);
  enter();
}

/// A job of one has nobody to agree with on a view.
void ViewDriver::enter_anew() {
  place_.on(ViewTable::view_ended);
  group_->fence({Code::peer_lost, "the view is entered anew"});
  take_stock();
  place_.on(ViewTable::view_decided);
  auto view = view_;
  std::unique_ptr<collective::Group> group;
  auto settled = try_enter(view, group).or_throw();
  take_up(view, std::move(group), settled);
}

step::Rows ViewDriver::exchange(const std::function<std::string()>& row) {
  auto& reductions = training_.reductions;
  for (reductions.begin_exchange(); !reductions.exchange_done();) {
    auto tried = reductions.try_exchange(row());
    if (!tried.ok()) go_on_after(tried.error());
  }
  return reductions.take_rows();
}

void ViewDriver::decide() {
  if (!roster_ || !counts()) return;
  const auto& turn = training_.turn;
  const auto& outlooks = turn.summary().outlooks;
  training_.job.assignment = {turn.closing_view(), turn.summary().shares};
  decision_ = Decision::stay;
  if (membership::nobody_goes_on(outlooks)) {
    decision_ = Decision::end;  // nobody is taken in any more
    return;
  }
  auto next = membership::next_view(turn.closing_view(), outlooks, turn.named_plan());
  if (!next || (planted("switch-forgotten") && view_.epoch > turn.closing_view().epoch)) return;
  decision_ = Decision::change;
  decided_ = std::move(*next);
  follow_decision(view_);  // the step may have been settled in a later view
}

/// The change that the last step decided has come true if `view` comes of it. It has not if a loss came first: then
/// nobody has it. Views in force that have one epoch have the same members, so all come to the same answer.
void ViewDriver::follow_decision(const View& view) {
  if (decision_ != Decision::change || view.epoch < decided_.epoch) return;
  auto& assignment = training_.job.assignment;
  if (view.planned == decided_.planned) assignment = assignment.among(decided_);
  decision_ = Decision::stay;
}

// ---- between two steps ----

void ViewDriver::between_steps() {
  if (!roster_) return;
  make_spares();
  if (place_.is(ViewTable::owing) && training_.job.loop >= owed_in_loop_) give_owed();
  if (decision_ != Decision::stay) finish_in_flight();
  if (place_.is(ViewTable::inside)) {
    if (decision_ == Decision::change) roster_->adopt(decided_);
    if (decision_ == Decision::change || roster_->must_change()) {
      place_.on(ViewTable::view_ended);
      enter();
    }
  }
  for (;;) {
    if (place_.is(ViewTable::fallen)) {
      if (roster_->leaves()) return leave();
      place_.on(ViewTable::step_over);
      stand_outside();
    }
    if (!place_.is(ViewTable::outside)) break;
    ask_to_be_taken_in();
  }
  if (place_.is(ViewTable::inside) && decision_ == Decision::end) place_.on(ViewTable::job_over);
}

/// What is in flight when a step ends was submitted by all who made the step. Whoever comes with the next view has not
/// submitted it, and whoever goes would not see it done.
void ViewDriver::finish_in_flight() {
  for (;;) {
    if (!place_.is(ViewTable::inside) || decision_ == Decision::stay || planted("in-flight-switch")) return;
    auto finished = training_.reductions.wait_for_all();
    if (finished.ok()) return;
    go_on_after(finished.error());
  }
}

void ViewDriver::give_owed() {
  auto given = hand_over(*group_, owed_);
  if (!given.ok()) return go_on_after(given.error());
  place_.on(ViewTable::state_given);
}

void ViewDriver::leave() {
  place_.on(ViewTable::leaves);
  training_.platform.lower_priority();  // those who stay have work to do
  stand_outside();
}

/// Spares, at once: where no step is going on that could wait for it.
void ViewDriver::provide() {
  for (const auto& region : training_.reductions.regions()) region->make_spare({});
}

/// Spares, on the side: once a step has been made in the view, so that those who have just formed it are not disturbed.
void ViewDriver::make_spares() {
  if (!place_.is(ViewTable::inside) || spares_for_ == view_.epoch) return;
  spares_for_ = view_.epoch;
  reclaimer_->make_spares(training_.reductions.regions());
}

void ViewDriver::ask_to_be_taken_in() {
  provide();
  if (roster_->await_entry(training_.replicas.describe())) {
    place_.on(ViewTable::taken_in);
    return enter();
  }
  training_.platform.lower_priority();  // those who are left, if any, have work to do
  place_.on(ViewTable::job_over);
}

// ---- from view to view ----

/// Goes on in the view that is agreed on, whoever dies on the way.
void ViewDriver::enter() {
  auto began = clock_.now();
  if (auto next = roster_->await_next(); next && keeps_group(*next)) return place_.on(ViewTable::same_group);
  take_stock();
  while (place_.is(ViewTable::changing)) {
    auto view = roster_->await_next();
    if (!view) {
      fall_behind();
      break;
    }
    place_.on(ViewTable::view_decided);
    follow_decision(*view);
    std::unique_ptr<collective::Group> group;
    auto settled = try_enter(*view, group);
    if (settled.ok()) {
      if (is_early(settled.value()))
        arrive_early(*view, std::move(group), settled.value());
      else
        take_up(*view, std::move(group), settled.value());
      break;
    }
    if (settled.error().code != Code::peer_lost) throw Failure(settled.error().code, settled.error().message);
    log::debug("view {} ended while it was entered: {}", view->epoch, settled.error().message);
    place_.on(ViewTable::view_ended);
    roster_->cannot_enter(*view);
  }
  training_.turn.timing().stalled += clock_.now() - began;
}

/// A view that differs only in votes needs no other group.
bool ViewDriver::keeps_group(const View& view) {
  if (!group_ || group_->fenced() || training_.turn.in_step() || view.members != view_.members ||
      !roster_->keep_group(view))
    return false;
  follow_decision(view);
  view_ = view;
  roster_->report_adopted(view_, training_.job.step);
  return true;
}

/// What of the view that has ended is complete here.
void ViewDriver::take_stock() {
  auto& turn = training_.turn;
  auto& reductions = training_.reductions;
  if (!group_) return;
  reductions.take_stock();
  if (turn.closing())
    turn.interrupted(turn.lacks_rows() ? group_->settle_exchange() : std::nullopt, reductions.step_held());
}

void ViewDriver::take_up(const View& view, std::unique_ptr<collective::Group> group, const Settled& settled) {
  auto& turn = training_.turn;
  auto& reductions = training_.reductions;
  auto before = std::exchange(view_, view);
  auto ended = std::exchange(group_, std::move(group));
  if (turn.closing() && !settled.step_complete) {
    reductions.salvage(*ended, before, view_, training_.self, turn.row(),
                       [this](auto id) { return roster_->is_dead(id); });
  }
  reductions.use(group_.get());
  auto regions = reductions.renew_regions();
  reductions.settle(settled.lacking, turn.fate(settled.step_complete));
  turn.settle(settled.step_complete);
  if (settled.given_later) owed_ = *settled.given_later, owed_in_loop_ = settled.loop;
  place_.on(settled.given_later ? ViewTable::settled_owing : ViewTable::settled);
  on_change_();
  if (roster_) roster_->report_adopted(view_, training_.job.step);
  reclaimer_->take({std::move(ended), std::move(regions)});
}

bool ViewDriver::is_early(const Settled& settled) const {
  return training_.blank() && settled.loop > training_.job.loop;
}

/// The program has earlier loops to pass by. What it reduces until then is its own affair, as before it was taken in.
void ViewDriver::arrive_early(const View& view, std::unique_ptr<collective::Group> group, Settled settled) {
  await_loop(view, std::move(group), std::move(settled));
  training_.reductions.go_on_alone(training_.turn.fate(false));
}

/// The same in the view in which its first loop begins.
void ViewDriver::step_aside(Settled settled) {
  if (!roster_) return await_loop(view_, nullptr, std::move(settled));
  place_.on(ViewTable::view_ended);
  place_.on(ViewTable::view_decided);
  auto view = view_;
  auto group = std::move(group_);
  be_alone();
  roster_->guard(group.get());
  await_loop(view, std::move(group), std::move(settled));
}

void ViewDriver::await_loop(const View& view, std::unique_ptr<collective::Group> group, Settled settled) {
  auto loop = settled.loop;
  log::info("the job is in loop {} of the program: this worker joins it there", loop);
  arrival_ = Arrival{view, std::move(group), std::move(settled), loop};
}

void ViewDriver::reach_loop() {
  if (training_.job.loop < awaited_loop()) return;
  auto arrival = std::exchange(arrival_, std::nullopt);
  if (!roster_) return (void)settle_in(*group_, view_).or_throw();
  auto given = be_given(*arrival);
  if (given.ok()) {
    take_stock();
    arrival->settled.given_later.reset();
    return take_up(arrival->view, std::move(arrival->group), arrival->settled);
  }
  if (given.error().code != Code::peer_lost) throw Failure(given.error().code, given.error().message);
  roster_->guard(nullptr);
  place_.on(ViewTable::view_ended);
  roster_->cannot_enter(arrival->view);
  arrival.reset();
  enter();
}

/// By those who have the state, or by the one that has a checkpoint once it has read it.
Status ViewDriver::be_given(Arrival& arrival) {
  if (arrival.settled.given_later) return hand_over(*arrival.group, *arrival.settled.given_later);
  auto settled = settle_in(*arrival.group, arrival.view);
  if (!settled.ok()) return settled.error();
  arrival.settled = std::move(settled).value();
  return {};
}

/// The others could not reach this worker and went on without it. What it is in the middle of ends as in a job of one,
/// and counts for nothing; then it asks to be taken in again, and gets the state that the others have.
void ViewDriver::fall_behind() {
  place_.on(ViewTable::left_behind);
  if (!planted("fallen-keeps-state")) training_.replica.on(step::ReplicaTable::forfeited);
  decision_ = Decision::stay;
  if (!roster_->leaves()) {
    if (!roster_->has_coordinator()) throw Failure(Code::refused, "the other workers went on without this one");
    log::warn("the other workers went on without this one: asking to be taken in again");
  }
  be_alone();
  training_.turn.settle(false);
}

}  // namespace pliant::session
