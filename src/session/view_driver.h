// The way of a worker from one view of its job to the next (ViewTable): it waits for the view that follows, meets its
// members, settles with them what the one before left open, and gives newcomers the state, or is given it.
//
// When a worker is lost, every wait in the view ends. Those who are left agree on the next view (Roster) and enter it,
// and each tells which of the interrupted reductions it has complete. What all have is done; nobody can have acted on
// anything else, because a step, and whatever else is waited for, is over only when all are known to have it. If the
// step was complete, it is committed as it is. If not, its reductions are done again from what each has: no forward or
// backward pass is run twice.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collective/group.h"
#include "membership/settle.h"
#include "membership/view.h"
#include "session/roster.h"
#include "session/training.h"
#include "step/snapshot.h"

namespace pliant::session {

/// Threads: the one that is inside a call of the session.
class ViewDriver {
 public:
  /// `training` must outlive this. Without a roster: a job of one. `on_change` is called when results are elsewhere.
  ViewDriver(Training& training, std::unique_ptr<Roster> roster, std::function<void()> on_change);
  ~ViewDriver();
  ViewDriver(const ViewDriver&) = delete;
  ViewDriver& operator=(const ViewDriver&) = delete;

  Roster* roster() const { return roster_.get(); }
  collective::Group& group() const { return *group_; }
  /// The view in force, which may be newer than the step that is going on.
  const membership::View& view() const { return view_; }
  step::ViewTable::State state() const { return place_.state(); }
  /// What this worker does counts for the job.
  bool counts() const { return !place_.is_one_of({step::ViewTable::fallen, step::ViewTable::outside}); }
  bool left() const { return place_.is(step::ViewTable::left); }
  bool over() const { return place_.is(step::ViewTable::over); }
  /// This worker is the first of those who are left: it speaks to people, and writes checkpoints.
  bool speaks_for_job() const;

  // ---- into the job ----
  /// As a member of a view that is known.
  Status found(const membership::View& view);
  /// As a member of the view that the coordinator names.
  void begin_inside(const membership::View& view);
  /// Until the job takes it in.
  void begin_outside();
  /// The first loop begins: state is made equal, or, for a newcomer, fetched.
  void settle_down();

  // ---- in a step ----
  /// A wait has failed. Throws `error` unless it means that the view has ended and another follows; enters that one.
  void go_on_after(const Error& error);
  /// Everybody's rows, whoever is lost meanwhile; `row` is asked in each view.
  step::Rows exchange(const std::function<std::string()>& row);
  /// The step that was closed decides which view follows.
  void decide();
  /// Everybody's digest of all state; Failure if they differ.
  std::uint64_t compare();

  /// There is memory that was not there: what it needs when the view changes is to be made beforehand, too.
  void regions_changed() { spares_for_ = 0; }
  /// Nobody reads this memory of an earlier view any more.
  void reclaim(std::shared_ptr<collective::Region> region) { reclaimer_->take({nullptr, {std::move(region)}}); }

  /// Between two steps: the view changes, or this worker is taken in again; until it is inside, or out for good, or
  /// awaits a later loop of its program.
  void between_steps();

  // ---- a newcomer, or a job from a checkpoint, in an earlier loop of the program than the job is in ----
  /// This worker has to begin the loop that the job is in. Until then it is no part of the job.
  bool awaits_loop() const { return arrival_.has_value(); }
  /// REQUIRES awaits_loop().
  std::uint64_t awaited_loop() const { return arrival_->loop; }
  /// Another loop of its program has begun: if it is the one that is awaited, this worker is given the state.
  void reach_loop();

 private:
  /// What the members of a view have found out together about what the one before left open.
  struct Settled {
    bool step_complete = false;                      // all have the step that this worker is in
    std::set<std::uint64_t> lacking;                 // what somebody lacks
    std::optional<membership::Verdict> given_later;  // newcomers get the state when all can give or take it
    std::uint64_t loop = 0;  // that the job is in, by those who have its state or a checkpoint; 0: nobody has
  };
  /// A view that this worker has come to before its program has reached the job's loop.
  struct Arrival {
    membership::View view;
    std::unique_ptr<collective::Group> group;  // nullptr in a job of one
    Settled settled;
    std::uint64_t loop = 0;
  };
  /// What the last step has decided.
  enum class Decision { stay, change, end };

  void enter();
  void enter_anew();
  Result<Settled> try_enter(const membership::View& view, std::unique_ptr<collective::Group>& group);
  bool keeps_group(const membership::View& view);
  void take_stock();
  void take_up(const membership::View& view, std::unique_ptr<collective::Group> group, const Settled& settled);
  bool is_early(const Settled& settled) const;
  void arrive_early(const membership::View& view, std::unique_ptr<collective::Group> group, Settled settled);
  void await_loop(const membership::View& view, std::unique_ptr<collective::Group> group, Settled settled);
  void step_aside(Settled settled);
  Status be_given(Arrival& arrival);
  Result<Settled> settle_in(collective::Group& group, const membership::View& view);
  membership::Report standing() const;
  void begin_again(const membership::View& view);
  void resume_if_due(const membership::View& view);
  Result<Settled> await_resumption(collective::Group& group, const membership::View& view, std::uint64_t loop);
  Error too_late_for(std::uint64_t loop) const;
  Status hand_over(collective::Group& group, const membership::Verdict& verdict);
  Result<step::JobSnapshot> check(const std::string& bytes);
  Status take_up(step::JobSnapshot snapshot);
  void follow_decision(const membership::View& view);
  void finish_in_flight();
  void give_owed();
  void ask_to_be_taken_in();
  void fall_behind();
  void leave();
  void be_alone();
  void stand_outside();
  void provide();
  void make_spares();

  Training& training_;
  std::unique_ptr<Roster> roster_;  // nullptr in a job of one
  const std::function<void()> on_change_;
  const Clock& clock_;
  std::unique_ptr<collective::Group> group_;
  std::unique_ptr<Reclaimer> reclaimer_;  // of the views before
  membership::View view_;                 // the group's
  step::Machine<step::ViewTable> place_;
  Decision decision_ = Decision::stay;
  membership::View decided_;        // if it is to change
  membership::Verdict owed_;        // if place_ is owing
  std::uint64_t owed_in_loop_ = 0;  // not before that one has begun here
  std::optional<Arrival> arrival_;  // if place_ is entering while the program runs
  std::uint64_t spares_for_ = 0;    // epoch of the view in which spares were asked for
};

}  // namespace pliant::session
