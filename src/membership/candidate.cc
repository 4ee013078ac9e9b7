// The part of Member that runs for candidate; member.cc has the rest.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "membership/member.h"

namespace pliant::membership {

void Member::recover(Nanos now, Decision& out) {
  out.fence = true;
  state_ = State::recovering;
  leader_.reset();
  plan_.reset();
  hasty_ = true;
  quiet_since_ = now;
  if (lower_left() == 0) claim(now, out);
}

void Member::claim(Nanos now, Decision& out) {
  highest_ = std::max(highest_, promised_) + 1;
  promised_ = fenced_ = highest_;
  promised_to_ = leader_ = self_;
  state_ = State::claiming;
  quiet_since_ = now;
  waited_ = false;
  votes_.clear();
  votes_[self_] = {view_.epoch, stored_under_, stored_, holds_};
  say_claim(out);
  propose_if_promised(now, out);
}

void Member::on(std::uint64_t from, const wire::Promise& promise, Nanos now, Decision& out) {
  if (state_ != State::claiming || promise.term != promised_) return;
  auto& vote = votes_[from];
  vote = {promise.view.epoch, promise.stored_under, std::nullopt, promise.holds != 0};
  if (auto stored = view_from(promise.stored); stored.ok()) vote.stored = std::move(stored).value();
  if (auto view = view_from(promise.view); view.ok() && newer(view.value())) return hear_of(view.value(), now, out);
  propose_if_promised(now, out);
}

void Member::on(std::uint64_t from, const wire::Decline& decline, Nanos now, Decision& out) {
  highest_ = std::max(highest_, decline.term);
  if (auto view = view_from(decline.view); view.ok() && newer(view.value())) return hear_of(view.value(), now, out);
  if (state_ != State::claiming && state_ != State::proposing && state_ != State::deciding) return;
  // It has promised, was told the base, and knows no view: it fell out of this one, and cannot come back to it.
  const bool fell_out = decline.term == promised_ && state_ == State::proposing && decline.view.members.empty();
  if (fell_out && view_.rank_of(from) >= 0 && !view_.votes(from)) lost_.note_out(from, view_.epoch);
  if (decline.term >= promised_) {
    state_ = State::recovering;
    leader_.reset();
    quiet_since_ = now;
    if (std::exchange(hasty_, false) && lower_left() == 0) claim(now, out);
  } else if (state_ == State::claiming && decline.view.epoch < view_.epoch && view_.rank_of(from) >= 0) {
    say_in_force({from}, out);
    out.letters.push_back({from, wire::Claim{promised_, 1}});
  }
}

void Member::propose_if_promised(Nanos now, Decision& out) {
  Ids voters;
  for (const auto& [id, vote] : votes_) voters.insert(id);
  if (state_ != State::claiming || !enough(voters)) return;
  if (needs_store(voters) && !waited_) return;
  if (votes_are_dead() && !anybody_holds()) return give_up(now, out);
  auto next = next_of_base();
  if (next.newcomers.size() == next.members.size()) return;  // who promised was lost since: proof decides
  if (out_of_reach(next)) return;
  store(std::move(next), promised_);
  state_ = State::proposing;
  quiet_since_ = now;
  stored_by_ = {self_};
  say_proposal(out);
  conclude_if_stored(now, out);
}

/// All who could have gone on in it are dead, and none is known to have: it is as if nobody had stored it. Its
/// newcomers have no state but what those would have given them in it.
bool Member::never_acted_in(const View& successor) const {
  return std::ranges::all_of(successor.members, [&](const auto& m) {
    return !successor.votes(m.id) || (proven_dead(m.id) && lost_.last_view_of(m.id).epoch > 0);
  });
}

/// Nobody who is heard here has a vote in it, and somebody who has may live, and take it up. A store would know.
bool Member::out_of_reach(const View& successor) const {
  const auto& members = successor.members;
  auto lost = [&](const auto& m) { return !successor.votes(m.id) || lost_.contains(m.id); };
  auto may_live = [&](const auto& m) { return successor.votes(m.id) && !ended(m.id); };
  return !has_store_ && std::ranges::all_of(members, lost) && std::ranges::any_of(members, may_live);
}

bool Member::anybody_holds() const {
  return std::ranges::any_of(votes_, [&](const auto& entry) {
    const auto& [id, vote] = entry;
    return view_.rank_of(id) >= 0 && (vote.holds || (vote.stored && !never_acted_in(*vote.stored)));
  });
}

/// Every vote is dead, and so is everybody who had received the state.
void Member::give_up(Nanos now, Decision& out) {
  state_ = State::evicted;
  quiet_since_ = now;
  out.evicted = true;
}

View Member::next_of_base() const {
  const Vote* best = nullptr;
  for (const auto& [id, vote] : votes_) {
    if (!vote.stored || vote.stored->epoch != view_.epoch + 1 || view_.rank_of(id) < 0) continue;
    if (never_acted_in(*vote.stored) || planted("stored-ignored")) continue;
    if (best == nullptr || vote.stored_under > best->stored_under) best = &vote;
  }
  View next = best != nullptr ? *best->stored : view_;
  if (best == nullptr) {
    next.remove([&](const auto& m) { return !votes_.contains(m.id) || lost_.contains(m.id); });
    if (votes_are_dead()) std::erase_if(next.newcomers, [&](auto id) { return votes_.at(id).holds; });
  }
  next.term = promised_;
  next.epoch = view_.epoch + 1;
  return next;
}

void Member::conclude_if_stored(Nanos now, Decision& out) {
  if (state_ != State::proposing) return;
  if (never_acted_in(*stored_)) return claim(now, out);
  if (!enough(stored_by_) || out_of_reach(*stored_)) return;
  if (needs_store(stored_by_)) return ask_store(now, out);
  left_to_others(*stored_) ? leave_to_others(*stored_, now, out) : conclude(now, out);
}

/// It is without this member, and somebody who votes in it may live.
bool Member::left_to_others(const View& successor) const {
  const auto may_live = [&](const auto& m) { return successor.votes(m.id) && !ended(m.id); };
  return successor.rank_of(self_) < 0 && std::ranges::any_of(successor.members, may_live);
}

void Member::ask_store(Nanos now, Decision& out) {
  state_ = State::deciding;
  quiet_since_ = now;
  out.ask = stored_;
}

void Member::conclude(Nanos now, Decision& out) {
  auto all = ids_of(view_);
  set_base(*std::exchange(stored_, std::nullopt));
  all.merge(ids_of(view_));
  say_in_force(all, out);
  enter(now, out);
}

/// What is in force goes on without this member. It keeps what it has until one of those who have a vote in it says
/// that it goes on, by declining what it knows already: they may die before they do.
void Member::leave_to_others(View in_force, Nanos now, Decision& out) {
  stored_ = std::move(in_force);
  state_ = State::proposing;
  quiet_since_ = now;
  for (const auto& member : stored_->members) {
    if (ended(member.id)) continue;
    out.letters.push_back({member.id, wire::InForce{stored_->term, notice_of(*stored_)}});
    if (stored_->votes(member.id)) out.letters.push_back({member.id, wire::Propose{promised_, notice_of(*stored_)}});
  }
}

void Member::say_claim(Decision& out) const {
  for (const auto& member : view_.members)
    if (!votes_.contains(member.id) && !ended(member.id)) out.letters.push_back({member.id, wire::Claim{promised_, 1}});
}

void Member::say_proposal(Decision& out) const {
  for (const auto& [id, vote] : votes_) {
    if (stored_by_.contains(id) || view_.rank_of(id) < 0 || ended(id)) continue;
    if (vote.epoch < view_.epoch) say_in_force({id}, out);
    out.letters.push_back({id, wire::Propose{promised_, notice_of(*stored_)}});
  }
}

/// It was left to others, and all of them who vote have been lost since, without proof.
bool Member::left_to_the_lost() const {
  return stored_->rank_of(self_) < 0 && enough(stored_by_) &&
         std::ranges::all_of(stored_->members, [&](const auto& m) { return !stored_->votes(m.id) || is_lost(m.id); });
}

/// Whoever might still store the proposal is lost; others may have come back since.
bool Member::hopeless() const {
  return std::ranges::all_of(votes_, [&](const auto& vote) {
    return stored_by_.contains(vote.first) || lost_.contains(vote.first) || view_.rank_of(vote.first) < 0;
  });
}

}  // namespace pliant::membership
