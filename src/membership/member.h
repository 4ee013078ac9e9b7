// A member's part in agreeing on the next view: as candidate and as voter when somebody is lost, and in making sure
// that a planned switch cannot be undone once anybody acts on it.
//
// A state machine over injected events: it owns no socket, no clock and no thread, and is the same in production and
// in the simulation. Each event returns what to do. Time enters through on_time only, and only to repeat what may have
// been lost on the way, or to step in for a candidate that is silent.
//
//   state       event                                to          action
//   steady      a member of the view is lost         recovering  fence; the lowest member left claims a term
//   steady      the view cannot be entered here,     recovering  the same
//               or is used up
//   steady      adopt: a step ended with a switch    switching   store the next view; say so to all of this one
//   switching   enough have stored it                steady      enter it; tell those who come and go
//   switching   lost a voter, and not enough         recovering  fence; the lowest member left claims a term
//   recovering, enough have stored the switch        as if a member had said that it is in force
//   claiming
//   any         a member claims a higher term        recovering  fence; promise it, with the newest view in force and
//               to recover                                       what is stored to follow it
//   steady,     claim of a higher term, to plan      same        promise it, nothing else
//   switching
//   others      claim to plan                        same        decline: a recovery is not to be disturbed
//   any         claim to recover, by somebody who    same        decline, with the term promised and the view in force
//               is not in the view in force
//   any         claim of a term not above ours       same        decline, with the term promised and the view in force
//   claiming    enough promises (see below)          proposing   propose the next view to all who promised
//   claiming    a promise knows a newer view         claiming    take it as the base; claim from its other members too
//   claiming,   declined for the term                recovering  claim above it: at once if still the lowest left (once
//   proposing                                                    per recovery, or two rivals would race for ever)
//   claiming    declined with an older view          claiming    tell the one in force; claim again
//   recovering  proposal under the promised term     recovering  store it; say so
//   proposing   enough have stored it                steady      say that it is in force, enter it
//   proposing   ... and it is without this member    proposing   say that it is in force to those who are in it, and
//                                                                propose it again, which they decline; if they are
//                                                                lost for kPatience without proof, ask the store
//   proposing   ... by the store's leave (see below) deciding    ask the store
//   proposing,  all who vote in what is proposed     claiming    claim a higher term
//   deciding    died before they acted in it
//   deciding    the store says: this one             steady      say that it is in force, enter it
//   deciding    ... and it is without this member    proposing   as if enough had stored it: see above
//   any         the store says: another one          as if a member had said that it is in force
//   any         a newer view in force, with us, of   steady      enter it
//               no term below that of our promise
//   any         ... of a lower term, or with         recovering  take it as the base
//               something stored to follow it
//   any         a newer view in force, without us    evicted     -
//   newcomer    claim to recover or to plan          same        promise it, with the newest view in force, if it is
//                                                                known: whoever said so to us may have died
//                                                                before the others heard
//   recovering  silence for kPatience × (1 + how many members left have lower ids)   claim a higher term
//   proposing   silence for kPatience, and who has   claiming    claim a higher term
//               not stored it is lost
//   switching,  silence for kPatience                same        say again what has not been answered
//   claiming,
//   proposing,
//   deciding
//
// Enough: every member of the base view that did not promise (or store) is lost; and either all of those who vote are
// proven dead, or a majority of the base view's votes did promise (of exactly half, the half with the lowest id). Votes
// of those who are proven to have died in the base view without having voted on what follows it do not count. The base
// is the newest view in force that anybody who promised knows of; of two with one epoch, the one with the higher term.
//
// Newcomers have no vote until a step has ended with them, so that those who have no state cannot outvote those who
// have it. If all votes are proven dead, it takes every newcomer that is not proven dead: those of them who have
// received the state go on, and vote. If none has, the job's state is gone: each of them is told that it is evicted,
// because there is nothing to go on with.
//
// What is proposed: if anybody who promised has stored a successor of the base, the one stored under the highest term
// (a step's switch counts under the term of the view that it ends), because it may be in force already, unless all who
// vote in it are proven dead and none of them has acted in it. It gets the claimed term and keeps its epoch and
// members; who is lost in it is removed by the next recovery. Otherwise the base without those who did not promise:
// term as claimed, epoch one higher. So all views in force that somebody acts in and that have one epoch have the same
// members, whoever decided them. A successor whose voters have all died without acting in it is given up for a new
// claim, even while the store is asked for it, and a word that it is in force evicts nobody who has such proof: its
// newcomers have no state, and would wait in vain for those who had. Without a store, a successor whose voters are all
// lost, but not all proven dead, is neither proposed nor concluded: none of those who are heard could go on in it.
// Whoever votes in it and lives takes it up, once enough hear each other again. With a store it is asked for, because
// the store may have let others go on instead, who do not know yet; that the store takes it says of nobody that it goes
// on in it.
//
// With a store outside of the job (store.h), whoever did not promise and is not proven dead is left behind by the
// store's leave, and not by a majority's: any members go on, even a single one, if the store has not let others do so
// before. A store takes one successor of each epoch, for ever. Where all losses are proven, or a switch is complete, it
// is not asked; proof often follows a loss, so a candidate waits kPatience for it before it asks.
//
// On one host every loss is proven by the kernel, so any survivors go on. A loss without proof (a silent host) keeps
// its vote: a minority waits. A proof says in which view the dead last was, and counts for that view and later ones:
// those who went on without this member, and died then, have decided something that it does not know.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "membership/losses.h"
#include "membership/view.h"
#include "wire/messages.h"

namespace pliant::membership {

using Agreement = std::variant<wire::Claim, wire::Promise, wire::Decline, wire::Propose, wire::Stored, wire::InForce>;

struct Letter {
  std::uint64_t to = 0;  ///< a member's id, or whoever sent the claim that this answers
  Agreement message;
};

/// What an event asks of the caller, in this order.
struct Decision {
  bool fence = false;  ///< stop everything in the current view; before any letter is sent
  std::vector<Letter> letters;
  std::optional<View> ask;    ///< the store: shall this be the view of its epoch? on_decided() takes the answer
  std::optional<View> enter;  ///< this view is in force: go on in it
  /// The others went on without this member, or nobody is left who has the job's state. Who wanted to leave may go now.
  bool evicted = false;
};

class Member {
 public:
  static constexpr Nanos kPatience = std::chrono::milliseconds(200);

  /// `view` may be without members: a newcomer that has not been taken in yet. It enters once it hears that a view with
  /// it is in force. `has_store`: the same for all members of a job.
  /// A newcomer that was a member before: views up to `past`, the newest that it knew to be in force, are over for it.
  Member(std::uint64_t self, View view, bool has_store = false, View past = {});

  /// A member is lost: `proven` if the kernel says that its process is gone, which was in the view `last`. May be
  /// repeated; proof may come later. A mere suspicion ends when a recovery takes the suspect in: repeat it if the
  /// suspect is silent in the new view too.
  Decision on_lost(std::uint64_t id, bool proven, Nanos now, wire::LastView last = {});
  /// There is a connection to it again. A suspicion of somebody outside of the view is out of date then; one of a
  /// member of the view ends with what the members agree on.
  void on_found(std::uint64_t id);
  /// A peer that says that it has entered a view says that it is in force: pass that on as InForce. Where messages can
  /// be lost, members say it until the view's first step is complete.
  Decision on_message(std::uint64_t from, const Agreement& message, Nanos now);
  Decision on_time(Nanos now);
  /// The view in force could not be entered here, though nobody in it is lost any more, or it is used up: another one
  /// is needed.
  Decision on_unusable(Nanos now);
  /// By the store's word this is the view of its epoch, whoever asked for it.
  Decision on_decided(const View& view, Nanos now);

  /// The step's summaries were unanimous: `view` follows the one in force. Go on in it when told to enter it: at once,
  /// or once enough members are known to have ended the step too. REQUIRES: steady. Who leaves with it calls this as
  /// well, and stays until told that it is evicted: its vote may be needed.
  Decision adopt(View view, Nanos now);

  /// A plan of the coordinator. Kept if its term is the promised one or above, its base is the view in force and
  /// neither a recovery nor a switch is going on; returns whether it was. A coordinator whose plan does not come true
  /// claims a new term, and takes in only who waits outside: somebody who does not know yet that it was evicted would
  /// come back with old state.
  bool on_plan(const wire::Plan& plan);
  /// What to answer if it was not kept because a higher term is promised: whoever planned has to claim above that.
  wire::Decline refusal() const;
  /// This member has the job's state, compared with that of the others; or it never will have, from a later view on.
  void set_holds(bool holds) { holds_ = holds; }
  /// This worker has gone on in the view in force, and nothing of earlier ones is left to be done: what is known of
  /// their dead is forgotten in time.
  void on_settled();
  /// The members of the view in force, of what is stored to follow it, and of the plan.
  std::set<std::uint64_t> at_hand() const;
  std::size_t losses() const { return lost_.size(); }
  /// The newest plan that may still come true.
  const std::optional<View>& plan() const { return plan_; }

  /// The newest view known to be in force.
  const View& view() const { return view_; }
  /// What is stored to follow it, and may be in force already.
  const std::optional<View>& stored() const { return stored_; }
  bool recovering() const { return state_ != State::steady && state_ != State::switching; }
  std::uint64_t promised() const { return promised_; }
  /// It has promised a recovery of the view in force, or stored what follows it; or it may have.
  bool has_voted() const { return fenced_ > view_.term || stored_.has_value(); }
  /// The newest view that this worker knows of, in whichever life.
  const View& newest_known() const { return newcomer() ? past_ : view_; }
  bool is_lost(std::uint64_t id) const { return lost_.contains(id); }
  /// Its process is gone, by a kernel's word.
  bool ended(std::uint64_t id) const { return lost_.ended(id); }
  /// REQUIRES ended(id). The view that it was in.
  wire::LastView ended_in(std::uint64_t id) const { return lost_.last_view_of(id); }

 private:
  enum class State { steady, switching, recovering, claiming, proposing, deciding, evicted };
  using Ids = std::set<std::uint64_t>;
  /// What a promise said.
  struct Vote {
    std::uint64_t epoch = 0;  // of the newest view in force that the voter knew
    std::uint64_t stored_under = 0;
    std::optional<View> stored;
    bool holds = false;  // the job's state
  };

  void on(std::uint64_t from, const wire::Claim& claim, Nanos now, Decision& out);
  void on(std::uint64_t from, const wire::Promise& promise, Nanos now, Decision& out);
  void on(std::uint64_t from, const wire::Decline& decline, Nanos now, Decision& out);
  void on(std::uint64_t from, const wire::Propose& proposal, Nanos now, Decision& out);
  void on(std::uint64_t from, const wire::Stored& stored, Nanos now, Decision& out);
  void on(std::uint64_t from, const wire::InForce& news, Nanos now, Decision& out);

  void recover(Nanos now, Decision& out);
  void follow(std::uint64_t candidate, Nanos now, Decision& out);
  void claim(Nanos now, Decision& out);
  void propose_if_promised(Nanos now, Decision& out);
  void conclude_if_stored(Nanos now, Decision& out);
  void conclude(Nanos now, Decision& out);
  void leave_to_others(View in_force, Nanos now, Decision& out);
  void ask_store(Nanos now, Decision& out);
  bool conclude_switch(Nanos now, Decision& out);
  void hear_of(const View& view, Nanos now, Decision& out);
  void rebase(Nanos now, Decision& out);
  void enter(Nanos now, Decision& out);
  void set_base(View view);
  void store(View view, std::uint64_t under);

  View next_of_base() const;
  void say_claim(Decision& out) const;
  void say_proposal(Decision& out) const;
  void say_switch(Decision& out) const;
  void say_in_force(const Ids& to, Decision& out) const;

  static Ids ids_of(const View& view);
  bool newcomer() const { return view_.members.empty(); }
  bool newer(const View& view) const;
  /// Dead, and its last view was none after the base: what it has decided is known. Or it has said that it is out of
  /// the base, in which it had no vote.
  bool proven_dead(std::uint64_t id) const;
  bool enough(const Ids& who) const;
  bool by_proof(const Ids& who) const;
  bool votes_are_dead() const;
  bool anybody_holds() const;
  bool never_acted_in(const View& successor) const;
  bool out_of_reach(const View& successor) const;
  bool left_to_others(const View& successor) const;
  void give_up(Nanos now, Decision& out);
  bool needs_store(const Ids& who) const { return has_store_ && !by_proof(who); }
  int lower_left() const;
  bool leaderless() const;
  bool left_to_the_lost() const;
  bool hopeless() const;

  const std::uint64_t self_;
  const bool has_store_;
  View past_;  // the newest that has ended for this worker
  State state_ = State::steady;
  bool holds_ = true;
  Nanos quiet_since_{0};
  Losses lost_;

  // The view in force, and what may follow it.
  View view_;
  std::optional<View> stored_;  // its epoch is always one above
  std::uint64_t stored_under_ = 0;
  std::optional<View> plan_;

  // As voter.
  std::uint64_t promised_ = 0;                       // never below the term of a view that is known to be in force
  std::optional<std::uint64_t> promised_to_;         // may claim it again: the first answer may be lost
  std::uint64_t fenced_ = 0;                         // the highest term promised to a recovery
  std::optional<std::uint64_t> leader_;              // whose recovery this is
  std::map<std::uint64_t, std::uint64_t> switched_;  // who stored unasked -> hash of the view

  // As candidate.
  std::uint64_t highest_ = 0;  // of all terms heard of
  bool hasty_ = false;         // may claim at once when declined
  bool waited_ = false;        // for proof, before the store is asked
  std::map<std::uint64_t, Vote> votes_;
  Ids stored_by_;
};

}  // namespace pliant::membership
