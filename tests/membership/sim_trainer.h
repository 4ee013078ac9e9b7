// A small model of a worker's session around the real machine: steps, commits, switches, and what happens on the way
// into a view.
//
//   phase       what it waits for                                           next
//   outside     a view that takes it in                                     reporting
//   reporting   where all others of the view stand                          receiving, computing or exchanging
//   receiving   all of the state                                            computing or exchanging
//   computing   its own gradients                                           exchanging
//   exchanging  a row of every member                                       confirming
//   confirming  every member's word that it has all rows                    applying
//   applying    the update; then the step is committed                      computing or switching
//   switching   the machine: enough others have committed the switch        reporting
//   fenced      the next view                                               reporting
//   gone        nothing                                                     -
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>

#include "membership/sim_checker.h"
#include "membership/sim_machine.h"
#include "membership/sim_types.h"

namespace pliant::membership::sim {

class Trainer {
 public:
  enum class Phase {
    outside,
    reporting,
    receiving,
    computing,
    exchanging,
    confirming,
    applying,
    switching,
    fenced,
    gone
  };

  /// A view without members: a newcomer.
  Trainer(Surroundings& world, Id id, const View& first, Mutation mutation);
  void start();

  void receive(Id from, const Payload& payload);
  void wake(std::uint64_t alarm);
  void lost(Id id, bool proven);
  /// By the store.
  void decided(const View& view);
  /// Now and then: what was not answered is said again, and who is silent is suspected.
  void tick();
  /// Notice to leave; it goes with the next view.
  void ask_to_leave() { leaves_ = true; }

  Id id() const { return id_; }
  Phase phase() const { return phase_; }
  const View& view() const { return view_; }
  const Member& member() const { return machine_.member(); }
  const Log& log() const { return log_; }
  bool blank() const { return blank_; }
  bool leaves() const { return leaves_; }

 private:
  using Rows = std::map<Id, Row>;

  void on(Id from, const Agreement& message);
  void on(Id from, const Row& row);
  void on(Id from, const Entered& news);
  void on(Id from, const Confirm& word);
  void on(Id from, const StateCopy& gift);
  void on(Id from, const Heartbeat& beat);
  void on(Id from, const Reset&) { lost(from, false); }
  void on(Id, const Wish&) {}
  void on(Id, const wire::Plan& plan) { machine_.on_plan(plan); }
  void on(Id, const wire::Adopted&) {}

  void obey(const Decision& decision);
  void fence();
  void leave();
  void enter(const View& view);
  void settle_if_heard();
  void carry_out();
  bool receive_state();
  void give();
  void give_to(std::size_t rank);
  void resume();
  void begin_step();
  void submit();
  void complete_if_heard();
  void close_if_confirmed();
  Rows counted(const Rows& rows) const;
  std::shared_ptr<const Entry> entry_of(const Rows& rows) const;
  void commit(std::shared_ptr<const Entry> entry);
  void after_commit();
  void mark_stable(std::size_t steps);

  Report report() const;
  void say_again();
  void suspect_the_silent();
  void say_to_all(const View& view, Payload payload);
  void set_alarm(Nanos delay) { world_.wake(id_, delay, ++alarm_); }

  Surroundings& world_;
  const Id id_;
  const Mutation mutation_;
  Machine machine_;
  Phase phase_ = Phase::outside;
  bool leaves_ = false;
  std::uint64_t alarm_ = 0;

  // State that a view change leaves alone.
  bool blank_;
  Log log_;
  Ledger ledger_;
  std::uint64_t digest_ = 1;
  std::size_t stable_ = 0;
  bool in_step_ = false;
  Samples leased_;
  std::shared_ptr<const Entry> complete_;  // of the step it is in, not yet committed
  bool closed_ = false;                    // and all are known to have it

  // The view it is in.
  View view_, former_;
  std::uint64_t hash_ = 0;
  Report mine_;
  std::vector<Report> reports_;
  Verdict verdict_;
  bool settled_ = false, worked_ = false;
  bool contributes_ = false;
  std::optional<View> announced_;
  std::vector<Outlook> outlooks_;
  std::deque<Row> sent_;
  std::deque<Confirm> confirmed_;

  // What came in, by the view it belongs to: others may be ahead.
  std::map<std::pair<std::uint64_t, std::uint64_t>, Rows> rows_;  // by view and step
  std::map<std::uint64_t, std::map<Id, Report>> heard_reports_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::set<Id>> confirms_;  // by view and step
  std::map<std::uint64_t, StateCopy> copies_;
  std::map<Id, Nanos> heard_;
};

}  // namespace pliant::membership::sim
