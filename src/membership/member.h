// A member's part in agreeing on the next view: as candidate and as voter when somebody is lost, and in making sure
// that a planned switch cannot be undone once anybody acts on it.
//
// A state machine over injected events: it owns no socket, no clock and no thread, and is the same in production and
// in the simulation. Each event returns what to do. Time enters through on_time only, and only to repeat what may have
// been lost on the way, or to step in for a candidate that is silent.
//
//   state       event                                to          action
//   steady      a member of the view is lost         recovering  fence; the lowest member left claims a term
//   steady      adopt: a step ended with a switch    switching   store the next view; say so to all of this one
//   switching   enough have stored it                steady      enter it; tell those who come and go
//   switching   lost a voter, and not enough         recovering  fence; the lowest member left claims a term
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
//   proposing   ... by the store's leave (see below) deciding    ask the store
//   deciding    the store says: this one             steady      say that it is in force, enter it
//   any         the store says: another one          as if a member had said that it is in force
//   any         a newer view in force, with us, of   steady      enter it
//               no term below that of our promise
//   any         ... of a lower term, or with         recovering  take it as the base
//               something stored to follow it
//   any         a newer view in force, without us    evicted     -
//   recovering  silence for kPatience × (1 + how many members left have lower ids)   claim a higher term
//   proposing   silence for kPatience, and who has   claiming    claim a higher term
//               not stored it is lost
//   switching,  silence for kPatience                same        say again what has not been answered
//   claiming,
//   proposing,
//   deciding
//
// Enough: every member of the base view that did not promise (or store) is lost; and either all of those are proven
// dead, or a majority of the base view did promise (of exactly half, the half with the lowest id). The base is the
// newest view in force that anybody who promised knows of; of two with one epoch, the one with the higher term.
//
// What is proposed: if anybody who promised has stored a successor of the base, the one stored under the highest term
// (a step's switch counts under the term of the view that it ends), because it may be in force already. It gets the
// claimed term and keeps its epoch and members; who is lost in it is removed by the next recovery. Otherwise the
// base without those who did not promise: term as claimed, epoch one higher.
// So all views in force that have one epoch have the same members, whoever decided them.
//
// With a store outside of the job (store.h), whoever did not promise and is not proven dead is left behind by the
// store's leave, and not by a majority's: any members go on, even a single one, if the store has not let others do so
// before. A store takes one successor of each epoch, for ever. Where all losses are proven, or a switch is complete, it
// is not asked; proof often follows a loss, so a candidate waits kPatience for it before it asks.
//
// On one host every loss is proven by the kernel, so any survivors go on. A loss without proof (a silent host) keeps
// its vote: a minority waits. The two kinds mix badly in one place: whoever was evicted without proof and then sees all
// who evicted it die *with* proof would go on from the old view. On one host, end a silent process before evicting it.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "base/clock.h"
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
  bool evicted = false;       ///< the others went on without this member; who wanted to leave may go now
};

class Member {
 public:
  static constexpr Nanos kPatience = std::chrono::milliseconds(200);

  /// `view` may be without members: a newcomer that has not been taken in yet. It enters once it hears that a view with
  /// it is in force. `has_store`: the same for all members of a job.
  Member(std::uint64_t self, View view, bool has_store = false);

  /// A member is lost: `proven` if the kernel says that its process is gone. May be repeated; proof may come later.
  /// A mere suspicion ends when a recovery takes the suspect in: repeat it if the suspect is silent in the new view
  /// too.
  Decision on_lost(std::uint64_t id, bool proven, Nanos now);
  /// A peer that says that it has entered a view says that it is in force: pass that on as InForce. Where messages can
  /// be lost, members say it until the view's first step is complete.
  Decision on_message(std::uint64_t from, const Agreement& message, Nanos now);
  Decision on_time(Nanos now);
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
  /// The newest plan that may still come true.
  const std::optional<View>& plan() const { return plan_; }

  /// The newest view known to be in force.
  const View& view() const { return view_; }
  /// What is stored to follow it, and may be in force already.
  const std::optional<View>& stored() const { return stored_; }
  bool recovering() const { return state_ != State::steady && state_ != State::switching; }
  std::uint64_t promised() const { return promised_; }
  bool is_lost(std::uint64_t id) const { return lost_.contains(id); }

 private:
  enum class State { steady, switching, recovering, claiming, proposing, deciding, evicted };
  using Ids = std::set<std::uint64_t>;
  /// What a promise said.
  struct Vote {
    std::uint64_t epoch = 0;  // of the newest view in force that the voter knew
    std::uint64_t stored_under = 0;
    std::optional<View> stored;
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
  wire::Decline refusal() const;

  static Ids ids_of(const View& view);
  bool newcomer() const { return view_.members.empty(); }
  bool newer(const View& view) const;
  bool proven_dead(std::uint64_t id) const;
  bool enough(const Ids& who) const;
  bool by_proof(const Ids& who) const;
  bool needs_store(const Ids& who) const { return has_store_ && !by_proof(who); }
  int lower_left() const;
  bool leaderless() const;
  bool hopeless() const;

  const std::uint64_t self_;
  const bool has_store_;
  State state_ = State::steady;
  Nanos quiet_since_{0};
  std::map<std::uint64_t, bool> lost_;  // id -> proven

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
