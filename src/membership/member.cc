#include "membership/member.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/planted.h"

namespace pliant::membership {

Member::Member(std::uint64_t self, View view, bool has_store, View past)
    : self_(self),
      has_store_(has_store),
      past_(std::move(past)),
      holds_(!view.members.empty()),
      view_(std::move(view)),
      promised_(view_.term),
      highest_(view_.term) {}

// ---- events ----

Decision Member::on_lost(std::uint64_t id, bool proven, Nanos now, wire::LastView last) {
  Decision out;
  if (id == self_) return out;
  lost_.note(id, proven, last);
  switch (state_) {
    case State::steady:
      if (view_.rank_of(id) >= 0) recover(now, out);
      break;
    case State::switching:
      if (!conclude_switch(now, out) && view_.rank_of(id) >= 0) recover(now, out);
      break;
    case State::recovering:
      if (leaderless() && lower_left() == 0) claim(now, out);
      break;
    case State::claiming:
      propose_if_promised(now, out);
      break;
    case State::proposing:
      conclude_if_stored(now, out);
      break;
    case State::deciding:
      if (never_acted_in(*stored_)) claim(now, out);
      break;
    case State::evicted:
      break;
  }
  return out;
}

void Member::on_found(std::uint64_t id) {
  if (view_.rank_of(id) < 0) lost_.heard_from(id);
}

Decision Member::on_message(std::uint64_t from, const Agreement& message, Nanos now) {
  Decision out;
  // The dead have no vote. What they said of views that are in force is still true.
  if (ended(from) && !std::holds_alternative<wire::InForce>(message)) return out;
  // A suspect that speaks lives. Two members that suspect each other would otherwise claim in turns for ever.
  lost_.heard_from(from);
  std::visit([&](const auto& known) { on(from, known, now, out); }, message);
  return out;
}

Decision Member::on_time(Nanos now) {
  Decision out;
  const auto patience = state_ == State::recovering ? kPatience * (1 + lower_left()) : kPatience;
  if (now - quiet_since_ < patience) return out;
  quiet_since_ = now;
  switch (state_) {
    case State::switching:
      say_switch(out);
      break;
    case State::recovering:
      claim(now, out);
      break;
    case State::claiming:
      waited_ = true;
      say_claim(out);
      propose_if_promised(now, out);
      break;
    case State::proposing:
      if (has_store_ && left_to_the_lost())
        ask_store(now, out);
      else if (hopeless())
        claim(now, out);
      else
        say_proposal(out);
      break;
    case State::deciding:
      out.ask = stored_;
      break;
    case State::steady:
    case State::evicted:
      break;
  }
  return out;
}

Decision Member::on_unusable(Nanos now) {
  Decision out;
  if (state_ == State::steady && !newcomer()) recover(now, out);
  return out;
}

Decision Member::on_decided(const View& view, Nanos now) {
  Decision out;
  if (stored_ && view.members_hash() == stored_->members_hash() && left_to_others(view)) {
    // It may have been asked for by somebody who is not in it either: nobody is known to go on in it.
    if (state_ == State::deciding) leave_to_others(view, now, out);
  } else if (state_ == State::deciding && view.hash() == stored_->hash()) {
    conclude(now, out);
  } else {
    hear_of(view, now, out);
  }
  return out;
}

Decision Member::adopt(View view, Nanos now) {
  PLIANT_ASSERT(state_ == State::steady && view.epoch == view_.epoch + 1);
  Decision out;
  store(std::move(view), view_.term);
  plan_.reset();
  state_ = State::switching;
  quiet_since_ = now;
  say_switch(out);
  conclude_switch(now, out);
  return out;
}

bool Member::on_plan(const wire::Plan& plan) {
  auto view = view_from(plan.view);
  if (state_ != State::steady || newcomer() || plan.term < promised_ || !view.ok()) return false;
  if (plan.base != view_.hash() || view.value().epoch != view_.epoch + 1) return false;
  if (plan.term > promised_) promised_to_.reset();
  promised_ = plan.term;
  plan_ = std::move(view).value();
  return true;
}

void Member::on_settled() {
  lost_.on_settled([ids = at_hand()](auto id) { return ids.contains(id); });
}

Member::Ids Member::at_hand() const {
  auto ids = ids_of(view_);
  if (stored_) ids.merge(ids_of(*stored_));
  if (plan_) ids.merge(ids_of(*plan_));
  return ids;
}

// ---- as voter ----

void Member::on(std::uint64_t from, const wire::Claim& claim, Nanos now, Decision& out) {
  highest_ = std::max(highest_, claim.term);
  const bool again = claim.term == promised_ && promised_to_ == from;
  const bool stranger = claim.recover && !newcomer() && view_.rank_of(from) < 0;
  const bool untimely = claim.recover ? state_ == State::evicted : recovering();
  if ((claim.term <= promised_ && !again) || stranger || untimely) {
    out.letters.push_back({from, refusal()});
    return;
  }
  promised_ = claim.term;
  promised_to_ = from;
  if (claim.recover) follow(from, now, out);
  const bool left_behind = newcomer() && past_.rank_of(self_) < 0;
  wire::Promise promise{promised_, notice_of(left_behind ? past_ : view_), 0, {}, static_cast<std::uint8_t>(holds_)};
  if (stored_) promise.stored_under = stored_under_, promise.stored = notice_of(*stored_);
  out.letters.push_back({from, std::move(promise)});
}

/// Leaves the view to the candidate that was promised `promised_`.
void Member::follow(std::uint64_t candidate, Nanos now, Decision& out) {
  fenced_ = promised_;
  if (newcomer()) return;
  out.fence = state_ == State::steady || state_ == State::switching;
  state_ = State::recovering;
  leader_ = candidate;
  plan_.reset();
  quiet_since_ = now;
}

void Member::on(std::uint64_t from, const wire::Propose& proposal, Nanos now, Decision& out) {
  auto view = view_from(proposal.view);
  if (!view.ok()) return;
  const bool promised = proposal.term == promised_ && promised_to_ == from && state_ == State::recovering;
  if (!promised || view.value().epoch <= view_.epoch) {
    out.letters.push_back({from, refusal()});
    return;
  }
  if (view.value().epoch != view_.epoch + 1) return;  // the base is on its way: the candidate tells who is behind
  quiet_since_ = now;
  store(std::move(view).value(), proposal.term);
  out.letters.push_back({from, wire::Stored{proposal.term, stored_->hash()}});
}

void Member::on(std::uint64_t, const wire::InForce& news, Nanos now, Decision& out) {
  if (auto view = view_from(news.view); view.ok()) hear_of(view.value(), now, out);
}

/// `view` is in force, says somebody who knows.
void Member::hear_of(const View& view, Nanos now, Decision& out) {
  const bool inside = view.rank_of(self_) >= 0;
  if (newcomer() && !inside && view.epoch > past_.epoch) past_ = view;  // what comes late of a view before it is over
  if (state_ == State::evicted || !newer(view) || view.epoch <= past_.epoch || (newcomer() && !inside)) return;
  if (!inside && view.epoch == view_.epoch + 1 && never_acted_in(view)) return;
  const auto before = state_;
  set_base(view);
  if (!inside) {
    state_ = State::evicted;
    out.evicted = true;
  } else if (view.term >= fenced_ && !stored_) {
    // Everybody in it has been heard by whoever decided it: suspicions are out of date, deaths are not.
    lost_.drop_suspicions([&](auto id) { return view_.rank_of(id) >= 0; });
    out.fence = before == State::steady || before == State::switching;
    enter(now, out);
  } else {
    rebase(now, out);
  }
}

/// The base has changed under a promise that forbids to enter it.
void Member::rebase(Nanos now, Decision& out) {
  switch (state_) {
    case State::claiming:
      say_claim(out);
      propose_if_promised(now, out);
      break;
    case State::proposing:
    case State::deciding:
      claim(now, out);
      break;
    default:
      out.fence = state_ != State::recovering;
      state_ = State::recovering;
      quiet_since_ = now;
  }
}

// ---- a step's switch ----

void Member::on(std::uint64_t from, const wire::Stored& stored, Nanos now, Decision& out) {
  if (state_ == State::proposing && stored.term == promised_) {
    if (stored.hash != stored_->hash()) return;
    stored_by_.insert(from);
    return conclude_if_stored(now, out);
  }
  switched_[from] = stored.hash;
  const bool behind = stored.hash == view_.hash() || view_.rank_of(from) < 0;
  if (state_ == State::steady && behind && !newcomer()) say_in_force({from}, out);
  conclude_switch(now, out);
}

/// Who leaves does not count: it waits until somebody who stays has heard enough, its own voice included. What enough
/// have stored is in force, also for a member that has ended the view meanwhile, because it has lost somebody.
bool Member::conclude_switch(Nanos now, Decision& out) {
  if (!stored_ || state_ == State::steady || state_ == State::evicted || stored_->rank_of(self_) < 0) return false;
  Ids who{self_};
  for (const auto& [id, hash] : switched_)
    if (hash == stored_->hash()) who.insert(id);
  if (!enough(who) || needs_store(who)) return false;
  if (state_ != State::switching) {
    hear_of(View(*stored_), now, out);
    return true;
  }
  Ids come_or_go;
  const auto before = ids_of(view_);
  const auto after = ids_of(*stored_);
  std::set_symmetric_difference(before.begin(), before.end(), after.begin(), after.end(),
                                std::inserter(come_or_go, come_or_go.end()));
  set_base(*std::exchange(stored_, std::nullopt));
  say_in_force(come_or_go, out);
  enter(now, out);
  return true;
}

// ---- in a view ----

/// Goes on in the view just set, unless it has lost somebody already.
void Member::enter(Nanos now, Decision& out) {
  leader_.reset();
  quiet_since_ = now;
  if (view_.rank_of(self_) < 0) {
    state_ = State::evicted;
    out.evicted = true;
    return;
  }
  state_ = State::steady;
  const bool whole = std::ranges::none_of(view_.members, [&](const auto& m) { return lost_.contains(m.id); });
  if (whole)
    out.enter = view_;
  else
    recover(now, out);
}

void Member::set_base(View view) {
  view_ = std::move(view);
  plan_.reset();
  if (stored_ && stored_->epoch <= view_.epoch) stored_.reset();
  highest_ = std::max(highest_, view_.term);
  std::erase_if(switched_, [&](const auto& said) { return view_.rank_of(said.first) < 0; });
  lost_.drop_suspicions([&](auto id) { return view_.rank_of(id) < 0; });
  if (view_.term < promised_) return;
  promised_ = view_.term;  // a claim of this term has done its work
  promised_to_.reset();
}

void Member::store(View view, std::uint64_t under) {
  stored_ = std::move(view);
  stored_under_ = under;
}

// ---- letters ----

void Member::say_switch(Decision& out) const {
  for (const auto& member : view_.members)
    if (member.id != self_ && !ended(member.id))
      out.letters.push_back({member.id, wire::Stored{view_.term, stored_->hash()}});
}

void Member::say_in_force(const Ids& to, Decision& out) const {
  for (auto id : to)
    if (id != self_ && !ended(id)) out.letters.push_back({id, wire::InForce{view_.term, notice_of(view_)}});
}

wire::Decline Member::refusal() const { return {promised_, notice_of(view_)}; }

// ---- questions ----

Member::Ids Member::ids_of(const View& view) {
  Ids ids;
  for (const auto& member : view.members) ids.insert(member.id);
  return ids;
}

bool Member::newer(const View& view) const {
  return std::tie(view.epoch, view.term) > std::tie(view_.epoch, view_.term);
}

bool Member::proven_dead(std::uint64_t id) const {
  if (lost_.is_out_of(id, view_.epoch)) return true;
  return ended(id) && (lost_.last_view_of(id).epoch <= view_.epoch || planted("proof-for-all-views"));
}

/// Whether these members of the base decide for all of it. Any two sets that do have a member in common: whoever is
/// known to have died without a vote is in none of them, so that its vote need not be outvoted.
bool Member::enough(const Ids& who) const {
  std::size_t have = 0, votes = 0;
  std::optional<std::uint64_t> lowest;
  for (const auto& member : view_.members) {
    if (!who.contains(member.id) && !lost_.contains(member.id)) return false;
    if (!view_.votes(member.id) || lost_.died_unvoted_in(member.id, view_.epoch)) continue;
    ++votes;
    have += who.contains(member.id);
    lowest = std::min(lowest.value_or(member.id), member.id);
  }
  if (have == 0) return votes_are_dead() && by_proof(who);
  if (by_proof(who) || has_store_) return true;
  return 2 * have > votes || (2 * have == votes && who.contains(*lowest)) || planted("minority-decides");
}

/// Nobody who might live and decide otherwise is left out. If no vote is left, every newcomer might.
bool Member::by_proof(const Ids& who) const {
  const bool orphans = votes_are_dead();
  return std::ranges::all_of(view_.members, [&](const auto& m) {
    return who.contains(m.id) || proven_dead(m.id) || (!orphans && !view_.votes(m.id));
  });
}

bool Member::votes_are_dead() const {
  return std::ranges::all_of(view_.members, [&](const auto& m) { return !view_.votes(m.id) || proven_dead(m.id); });
}

/// How many members that are not lost come before this one as candidates.
int Member::lower_left() const {
  return static_cast<int>(
      std::ranges::count_if(view_.members, [&](const auto& m) { return m.id < self_ && !lost_.contains(m.id); }));
}

bool Member::leaderless() const { return !leader_ || lost_.contains(*leader_); }

}  // namespace pliant::membership
