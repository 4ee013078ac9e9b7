// A candidate's rows of the table in member.h, with every message delivered by hand.
#include <gtest/gtest.h>

#include "membership/letters.h"
#include "membership/member.h"

namespace pliant::membership {
namespace {

TEST(Candidate, EnoughPromisesMakeAProposalWithoutTheLost) {
  Member one(1, kView);
  (void)one.on_lost(3, false, kNow);
  auto out = one.on_message(2, promise(2, kView), kNow);
  EXPECT_EQ(view_in(letter_to<wire::Propose>(out, 2).view).hash(), view_of(2, 2, {1, 2}).hash());
  EXPECT_FALSE(out.enter);
}

TEST(Candidate, EverybodyWhoIsNotLostIsWaitedFor) {
  Member one(1, kLarge);
  (void)one.on_lost(5, false, kNow);
  EXPECT_TRUE(one.on_message(2, promise(2, kLarge), kNow).letters.empty());
  EXPECT_TRUE(one.on_message(3, promise(2, kLarge), kNow).letters.empty());  // a majority, but 4 is there
  EXPECT_EQ(receivers_of<wire::Propose>(one.on_lost(4, false, kNow)), (Ids{2, 3}));
}

TEST(Candidate, AMinorityWaits) {
  Member one(1, kLarge);
  for (std::uint64_t id : {3, 4, 5}) (void)one.on_lost(id, false, kNow);
  EXPECT_TRUE(one.on_message(2, promise(2, kLarge), kNow).letters.empty());
  auto out = one.on_message(4, promise(2, kLarge), kNow);  // it lives: a majority
  EXPECT_EQ(view_in(letter_to<wire::Propose>(out, 4).view).hash(), view_of(2, 2, {1, 2, 4}).hash());
}

TEST(Candidate, OfTwoHalvesTheOneWithTheLowestIdGoesOn) {
  const auto pair = view_of(1, 1, {1, 2});
  EXPECT_TRUE(Member(1, pair).on_lost(2, false, kNow).enter);
  EXPECT_FALSE(Member(2, pair).on_lost(1, false, kNow).enter);
}

TEST(Candidate, ProvenDeathsLeaveAnySurvivor) {
  Member five(5, kLarge);
  for (std::uint64_t id : {1, 2, 3}) EXPECT_FALSE(five.on_lost(id, true, kNow).enter);
  EXPECT_EQ(five.on_lost(4, true, kNow).enter->hash(), view_of(2, 2, {5}).hash());
}

TEST(Candidate, OneLossWithoutProofIsEnoughToNeedAMajority) {
  Member five(5, kLarge);
  for (std::uint64_t id : {2, 3, 4}) (void)five.on_lost(id, true, kNow);
  EXPECT_FALSE(five.on_lost(1, false, kNow).enter);
  EXPECT_TRUE(five.on_lost(1, true, kNow).enter);  // the proof comes later
}

/// Two have the state, the others have just been taken in: nobody is proven dead.
TEST(Candidate, NewcomersHaveNoVoteHoweverManyTheyAre) {
  auto grown = kLarge;
  grown.newcomers = {3, 4, 5};
  Member two(2, grown);
  (void)two.on_lost(1, false, kNow);
  for (std::uint64_t id : {3, 4, 5}) EXPECT_TRUE(two.on_message(id, promise(2, grown), kNow).letters.empty());

  Member one(1, grown);
  for (std::uint64_t id : {2, 3, 4}) EXPECT_FALSE(one.on_lost(id, false, kNow).enter);
  auto out = one.on_lost(5, false, kNow);
  ASSERT_TRUE(out.enter) << "half of the votes, and the lowest";
  EXPECT_EQ(ids_of(*out.enter), Ids{1});
}

TEST(Candidate, OfTwoHalvesTheLowestVoteCountsAndNotTheLowestNewcomer) {
  auto view = view_of(1, 1, {1, 2, 3});
  view.newcomers = {1};
  Member two(2, view), three(3, view);
  (void)two.on_lost(3, false, kNow);
  (void)three.on_lost(2, false, kNow);
  EXPECT_TRUE(two.on_lost(1, false, kNow).enter);
  EXPECT_FALSE(three.on_lost(1, false, kNow).enter);
}

// ---- with a store ----

constexpr Nanos kLater = Member::kPatience;

TEST(CandidateWithStore, OneAloneAsksAfterAWhileAndGoesOnIfItMay) {
  Member five(5, kLarge, true);
  for (std::uint64_t id : {1, 2, 3, 4}) EXPECT_FALSE(five.on_lost(id, false, kNow).ask);
  auto out = five.on_time(kLater);
  ASSERT_TRUE(out.ask);
  EXPECT_EQ(out.ask->hash(), view_of(2, 2, {5}).hash());
  EXPECT_FALSE(out.enter);
  EXPECT_EQ(five.on_time(2 * kLater).ask->hash(), out.ask->hash());  // again, until there is an answer
  out = five.on_decided(*out.ask, 2 * kLater);
  ASSERT_TRUE(out.enter);
  EXPECT_EQ(receivers_of<wire::InForce>(out), (Ids{1, 2, 3, 4}));
}

TEST(CandidateWithStore, WhoComesSecondIsToldAndStaysBehind) {
  Member five(5, kLarge, true);
  for (std::uint64_t id : {1, 2, 3, 4}) (void)five.on_lost(id, false, kNow);
  (void)five.on_time(kLater);
  auto out = five.on_decided(view_of(2, 2, {1, 2, 3, 4}), kLater);
  EXPECT_TRUE(out.evicted);
  EXPECT_FALSE(out.enter);
}

TEST(CandidateWithStore, AMajorityAsksToo) {
  Member one(1, kView, true);
  (void)one.on_lost(3, false, kNow);
  EXPECT_TRUE(one.on_message(2, promise(2, kView), kNow).letters.empty());
  auto out = one.on_time(kLater);
  const auto next = view_of(2, 2, {1, 2});
  EXPECT_EQ(view_in(letter_to<wire::Propose>(out, 2).view).hash(), next.hash());
  EXPECT_FALSE(out.ask) << "before all who go on have stored it";
  out = one.on_message(2, wire::Stored{2, next.hash()}, kLater);
  ASSERT_TRUE(out.ask);
  EXPECT_FALSE(out.enter);
}

TEST(CandidateWithStore, ProofThatFollowsNeedsNobodysLeave) {
  Member one(1, kView, true);
  (void)one.on_lost(3, false, kNow);
  (void)one.on_message(2, promise(2, kView), kNow);
  auto out = one.on_lost(3, true, kNow);
  EXPECT_EQ(receivers_of<wire::Propose>(out), Ids{2});
  out = one.on_message(2, wire::Stored{2, view_of(2, 2, {1, 2}).hash()}, kNow);
  EXPECT_FALSE(out.ask);
  EXPECT_TRUE(out.enter);
}

TEST(CandidateWithStore, ASwitchThatLostSomebodyIsLeftToTheStore) {
  Member one(1, kView, true);
  const auto next = view_of(1, 2, {1, 2, 3, 4});
  (void)one.adopt(next, kNow);
  (void)one.on_message(2, wire::Stored{1, next.hash()}, kNow);
  auto out = one.on_lost(3, false, kNow);  // a majority has it, but 3 may be elsewhere with others
  EXPECT_FALSE(out.enter);
  EXPECT_TRUE(out.fence);
}

// ---- the base ----

TEST(Candidate, TheNewestViewInForceIsTheBase) {
  Member one(1, kView);
  (void)one.on_lost(3, false, kNow);
  const auto newer = view_of(1, 2, {1, 2, 4});
  auto out = one.on_message(2, promise(2, newer), kNow);
  EXPECT_EQ(receivers_of<wire::Claim>(out), Ids{4});  // a member of the base that was not asked yet
  out = one.on_message(4, promise(2, kNone), kNow);
  EXPECT_EQ(view_in(letter_to<wire::Propose>(out, 2).view).hash(), view_of(2, 3, {1, 2, 4}).hash());
  EXPECT_EQ(letter_to<wire::InForce>(out, 4).view.epoch, 2U);  // it is behind
}

TEST(Candidate, WhatSomebodyStoredIsProposedAgain) {
  Member one(1, kLarge);
  for (std::uint64_t id : {4, 5}) (void)one.on_lost(id, false, kNow);
  auto older = promise(3, kLarge), newer = promise(3, kLarge);
  older.stored = notice_of(view_of(9, 2, {1, 2, 3, 4, 5, 6})), older.stored_under = 1;
  newer.stored = notice_of(view_of(2, 2, {1, 2, 5})), newer.stored_under = 2;
  (void)one.on_message(2, wire::Decline{2, notice_of(kLarge)}, kNow);  // claims 3 now
  (void)one.on_message(2, older, kNow);
  auto out = one.on_message(3, newer, kNow);
  EXPECT_EQ(view_in(letter_to<wire::Propose>(out, 2).view).hash(), view_of(3, 2, {1, 2, 5}).hash());
}

/// Members 3 to 5 have ended a step with which they go; 1 and 2, who stay, are lost.
Member leaver_without_those_who_stay() {
  Member three(3, kLarge);
  (void)three.adopt(view_of(1, 2, {1, 2}), kNow);
  for (std::uint64_t id : {1, 2}) (void)three.on_lost(id, false, kNow);
  return three;
}

wire::Promise promise_with(const View& stored) { return {2, notice_of(kLarge), 1, notice_of(stored), 1}; }

TEST(Candidate, WhatNobodyWhoIsHeardIsInIsNotDecided) {
  auto three = leaver_without_those_who_stay();
  const auto stored = view_of(1, 2, {1, 2});
  (void)three.on_message(4, promise_with(stored), kNow);
  auto out = three.on_message(5, promise_with(stored), kNow);
  EXPECT_TRUE(out.letters.empty());  // a majority, but none of it would go on
  EXPECT_FALSE(out.evicted);
  out = three.on_time(Member::kPatience);
  EXPECT_EQ(receivers_of<wire::Claim>(out), (Ids{1, 2}));  // they may be back
  EXPECT_TRUE(three.on_message(1, wire::Decline{2, notice_of(stored)}, kNow).evicted);
}

TEST(Candidate, IfAllWhoWereToStayAreDeadThoseWhoWereToGoStay) {
  auto three = leaver_without_those_who_stay();
  for (std::uint64_t id : {4, 5}) (void)three.on_message(id, promise_with(view_of(1, 2, {1, 2})), kNow);
  EXPECT_TRUE(three.on_lost(1, true, kNow, 1).letters.empty());
  auto out = three.on_lost(2, true, kNow, 1);
  EXPECT_EQ(ids_of(view_in(letter_to<wire::Propose>(out, 4).view)), (Ids{3, 4, 5}));
}

/// Only the dead could have given the newcomers of that view anything in it.
TEST(Candidate, IfAllOfThemWithStateAreDeadThoseWhoWereToGoStay) {
  auto next = view_of(1, 2, {1, 2, 6, 7});
  next.newcomers = {6, 7};
  Member three(3, kLarge);
  (void)three.adopt(next, kNow);
  for (std::uint64_t id : {1, 2}) (void)three.on_lost(id, false, kNow);
  for (std::uint64_t id : {4, 5}) EXPECT_TRUE(three.on_message(id, promise_with(next), kNow).letters.empty());
  (void)three.on_lost(1, true, kNow, 1);
  auto out = three.on_lost(2, true, kNow, 1);
  EXPECT_EQ(ids_of(view_in(letter_to<wire::Propose>(out, 4).view)), (Ids{3, 4, 5}));
}

/// Member 1 has put a view in force in which only 2 is.
Member one_that_is_out(bool has_store = false) {
  Member one(1, kView, has_store);
  (void)one.on_lost(3, true, kNow, 1);
  auto out = one.on_message(2, wire::Promise{2, notice_of(kView), 1, notice_of(view_of(1, 2, {2})), 1}, kNow);
  const auto proposed = view_in(letter_to<wire::Propose>(out, 2).view);
  EXPECT_EQ(ids_of(proposed), (Ids{2}));
  out = one.on_message(2, wire::Stored{2, proposed.hash()}, kNow);
  EXPECT_EQ(view_in(letter_to<wire::InForce>(out, 2).view).hash(), proposed.hash());
  EXPECT_FALSE(out.evicted);
  return one;
}

TEST(Candidate, WhoeverIsOutOfAViewStaysUntilAnotherGoesOn) {
  auto one = one_that_is_out();
  EXPECT_TRUE(one.on_message(2, wire::Decline{2, notice_of(view_of(2, 2, {2}))}, kNow).evicted);
}

TEST(Candidate, WhoeverIsOutOfAViewGoesOnIfNobodyElseCan) {
  auto one = one_that_is_out();
  auto out = one.on_lost(2, true, kNow, 1);
  ASSERT_TRUE(out.enter);
  EXPECT_EQ(ids_of(*out.enter), (Ids{1}));
}

TEST(Candidate, WhoeverIsOutOfAViewThatTheDeadActedInStaysOut) {
  auto one = one_that_is_out();
  EXPECT_TRUE(one.on_lost(2, true, kNow, 2).evicted);
}

/// Out of a view whose only member is lost without proof, and which the store takes when this one asks for it.
Member one_that_asked(View& taken) {
  auto one = one_that_is_out(true);
  EXPECT_FALSE(one.on_lost(2, false, kNow).evicted) << "proof may follow";
  auto out = one.on_time(Member::kPatience);
  EXPECT_TRUE(out.ask);
  taken = out.ask.value_or(View{});
  EXPECT_EQ(ids_of(taken), (Ids{2}));
  EXPECT_FALSE(one.on_decided(taken, Member::kPatience).evicted) << "it asked for that itself";
  return one;
}

TEST(CandidateWithStore, AViewOfTheLostEvictsNobodyWhileNobodyIsKnownToGoOnInIt) {
  View taken;
  auto one = one_that_asked(taken);
  ASSERT_TRUE(one.on_time(Member::kPatience * 2).ask);
  taken.term -= 1;  // as somebody else had asked for it before
  EXPECT_FALSE(one.on_decided(taken, Member::kPatience * 2).evicted);
  auto out = one.on_lost(2, true, kNow, 1);
  ASSERT_TRUE(out.enter) << "nobody ever did";
  EXPECT_EQ(ids_of(*out.enter), (Ids{1}));
}

TEST(CandidateWithStore, AViewOfTheLostEvictsOnceSomebodyHasGoneOnInIt) {
  View taken;
  auto one = one_that_asked(taken), another = one_that_asked(taken);
  EXPECT_TRUE(one.on_message(2, wire::Decline{taken.term, notice_of(taken)}, kNow).evicted);
  EXPECT_TRUE(another.on_lost(2, true, kNow, 2).evicted) << "it died there";
}

TEST(Candidate, WhatTheDeadMayHaveActedInStaysInForce) {
  auto three = leaver_without_those_who_stay();
  for (std::uint64_t id : {4, 5}) (void)three.on_message(id, promise_with(view_of(1, 2, {1, 2})), kNow);
  (void)three.on_lost(1, true, kNow);  // nobody knows in which view
  auto out = three.on_lost(2, true, kNow, 1);
  EXPECT_EQ(ids_of(view_in(letter_to<wire::Propose>(out, 4).view)), (Ids{1, 2}));
}

TEST(CandidateWithStore, TheStoreIsAskedForWhatNobodyWhoIsHeardIsIn) {
  Member two(2, view_of(1, 1, {1, 2}), true);
  (void)two.adopt(view_of(1, 2, {1}), kNow);
  (void)two.on_lost(1, false, kNow);
  auto out = two.on_time(kLater);
  ASSERT_TRUE(out.ask);  // which may have let this one go on before
  EXPECT_EQ(ids_of(*out.ask), (Ids{1}));
}

/// The proof comes while the store is silent, which says later that those who died without it may go on.
TEST(CandidateWithStore, WhatOnlyTheDeadWereInIsNotWaitedFor) {
  Member two(2, view_of(1, 1, {1, 2}), true);
  const auto next = view_of(1, 2, {1});
  (void)two.adopt(next, kNow);
  (void)two.on_lost(1, false, kNow);
  auto asked = two.on_time(kLater).ask;
  ASSERT_TRUE(asked);
  auto out = two.on_lost(1, true, kLater, 1);
  ASSERT_TRUE(out.enter);
  EXPECT_EQ(ids_of(*out.enter), (Ids{2}));
  out = two.on_decided(*asked, kLater);
  EXPECT_FALSE(out.evicted);
  EXPECT_EQ(ids_of(two.view()), (Ids{2}));
}

TEST(CandidateWithStore, AViewOfThoseWhoDiedWithoutItEndsNothing) {
  Member three(3, kView, true);
  (void)three.on_lost(1, true, kNow, 1);
  (void)three.on_lost(2, false, kNow);
  EXPECT_FALSE(three.on_message(2, in_force(view_of(2, 2, {1})), kNow).evicted);
  EXPECT_TRUE(three.on_message(2, in_force(view_of(2, 2, {2})), kNow).evicted) << "it may act in it";
}

TEST(Candidate, AProposalIsNotConcludedOnceAllWhoAreInItAreLost) {
  Member three(3, kLarge);
  (void)three.adopt(view_of(1, 2, {1, 4}), kNow);
  for (std::uint64_t id : {1, 2}) (void)three.on_lost(id, false, kNow);
  (void)three.on_message(4, promise_with(view_of(1, 2, {1, 4})), kNow);
  auto out = three.on_message(5, promise_with(view_of(1, 2, {1, 4})), kNow);
  const auto proposed = letter_to<wire::Propose>(out, 4);
  (void)three.on_message(4, wire::Stored{2, view_in(proposed.view).hash()}, kNow);
  (void)three.on_lost(4, false, kNow);
  out = three.on_message(5, wire::Stored{2, view_in(proposed.view).hash()}, kNow);
  EXPECT_FALSE(out.evicted);
  EXPECT_EQ(receivers_of<wire::Claim>(three.on_time(Member::kPatience)), (Ids{1, 2, 4, 5}));
}

TEST(Candidate, DeclinedForTheTermTheLowestClaimsAboveItOnceAtOnce) {
  Member one(1, kView);
  (void)one.on_lost(3, false, kNow);
  auto out = one.on_message(2, wire::Decline{7, notice_of(kView)}, kNow);
  EXPECT_EQ(letter_to<wire::Claim>(out, 2).term, 8U);
  out = one.on_message(2, wire::Decline{9, notice_of(kView)}, kNow);
  EXPECT_TRUE(out.letters.empty());
  EXPECT_EQ(letter_to<wire::Claim>(one.on_time(Member::kPatience), 2).term, 10U);
}

TEST(Candidate, DeclinedByOneWhoIsBehindItTellsTheView) {
  Member four(4, kNone);
  const auto newer = view_of(1, 2, {2, 4});
  (void)four.on_message(2, in_force(newer), kNow);
  (void)four.on_time(kNow);
  auto claimed = four.on_lost(2, false, kNow);
  EXPECT_EQ(letter_to<wire::Claim>(claimed, 2).term, 2U);
  auto out = four.on_message(2, wire::Decline{1, notice_of(kView)}, kNow);
  EXPECT_EQ(letter_to<wire::InForce>(out, 2).view.epoch, 2U);
  EXPECT_EQ(letter_to<wire::Claim>(out, 2).term, 2U);
}

TEST(Candidate, DeclinedWithANewerViewWithoutItItIsEvicted) {
  Member one(1, kView);
  (void)one.on_lost(2, false, kNow);
  auto out = one.on_message(3, wire::Decline{7, notice_of(view_of(7, 2, {2, 3}))}, kNow);
  EXPECT_TRUE(out.evicted);
  EXPECT_TRUE(one.on_time(Member::kPatience * 9).letters.empty());
  EXPECT_EQ(letter_to<wire::Decline>(one.on_message(2, wire::Claim{9, 1}, kNow), 2).view.epoch, 2U);
}

TEST(Candidate, OnceEnoughHaveStoredItTheViewIsInForce) {
  Member one(1, kView);
  (void)one.on_lost(3, false, kNow);
  auto proposed = letter_to<wire::Propose>(one.on_message(2, promise(2, kView), kNow), 2);
  EXPECT_FALSE(one.on_message(2, wire::Stored{2, 12345}, kNow).enter);
  auto out = one.on_message(2, wire::Stored{2, view_in(proposed.view).hash()}, kNow);
  ASSERT_TRUE(out.enter);
  EXPECT_EQ(out.enter->hash(), view_of(2, 2, {1, 2}).hash());
  EXPECT_EQ(receivers_of<wire::InForce>(out), (Ids{2, 3}));  // who is evicted should know
  EXPECT_FALSE(one.recovering());
}

TEST(Candidate, AHigherClaimEndsACandidacy) {
  Member one(1, kView);
  (void)one.on_lost(3, false, kNow);
  EXPECT_EQ(letter_to<wire::Promise>(one.on_message(2, wire::Claim{3, 1}, kNow), 2).term, 3U);
  EXPECT_TRUE(one.on_message(2, promise(2, kView), kNow).letters.empty());
}

TEST(Candidate, ACandidateSaysItAgain) {
  Member one(1, kLarge);
  (void)one.on_lost(5, false, kNow);
  (void)one.on_message(2, promise(2, kLarge), kNow);
  EXPECT_EQ(receivers_of<wire::Claim>(one.on_time(Member::kPatience)), (Ids{3, 4, 5}));
  (void)one.on_message(3, promise(2, kLarge), kNow);
  (void)one.on_message(4, promise(2, kLarge), kNow);
  EXPECT_EQ(receivers_of<wire::Propose>(one.on_time(Member::kPatience * 2)), (Ids{2, 3, 4}));
}

TEST(Candidate, AProposalThatNobodyCanStoreIsGivenUp) {
  Member one(1, kLarge);
  for (std::uint64_t id : {4, 5}) (void)one.on_lost(id, false, kNow);
  for (std::uint64_t id : {2, 3}) (void)one.on_message(id, promise(2, kLarge), kNow);
  for (std::uint64_t id : {2, 3}) EXPECT_FALSE(one.on_lost(id, false, kNow).enter);
  EXPECT_EQ(receivers_of<wire::Claim>(one.on_time(Member::kPatience)), (Ids{2, 3, 4, 5}));
}

/// The only vote is dead. Of two newcomers one has the state, the other gave up and asks to be taken in again: it says
/// that it is in no view, even when it is told of this one.
TEST(Candidate, ANewcomerThatHasFallenOutIsNotWaitedFor) {
  auto view = kView;
  view.newcomers = {2, 3};
  Member three(3, view);
  three.set_holds(true);
  (void)three.on_lost(1, true, kNow, view.epoch);
  auto now = kNow + Member::kPatience * 4;
  auto out = three.on_time(now);
  auto term = letter_to<wire::Claim>(out, 2).term;
  out = three.on_message(2, promise(term, kNone), now);
  EXPECT_EQ(ids_of(view_in(letter_to<wire::Propose>(out, 2).view)), (Ids{2, 3}));
  (void)three.on_message(2, wire::Decline{term, notice_of(kNone)}, now);
  now += Member::kPatience * 4;
  out = three.on_time(now);
  if (three.recovering()) out = three.on_message(2, promise(three.promised(), kNone), now);
  EXPECT_FALSE(three.recovering());
  EXPECT_EQ(ids_of(three.view()), (Ids{3}));
}

/// What it has stored is of no use: whoever had a vote in it is dead, and has given it no state.
TEST(Candidate, ANewcomerWhoseStoredViewDiedWithItsVotesGivesUp) {
  auto view = view_of(1, 15, {8, 11, 12});
  view.newcomers = {11, 12};
  Member twelve(12, view);
  twelve.set_holds(false);
  (void)twelve.on_lost(11, false, kNow);
  (void)twelve.on_message(8, wire::Claim{2, 1}, kNow);
  auto next = view_of(2, 16, {8, 12});
  next.newcomers = {12};
  (void)twelve.on_message(8, proposal(2, next), kNow);
  ASSERT_TRUE(twelve.stored());
  (void)twelve.on_lost(8, true, kNow, view.epoch);
  auto out = twelve.on_lost(11, true, kNow, view.epoch);
  for (int turn = 1; turn < 5 && !out.evicted; ++turn) out = twelve.on_time(kNow + Member::kPatience * 4 * turn);
  EXPECT_TRUE(out.evicted) << "others may begin again from a checkpoint";
}

}  // namespace
}  // namespace pliant::membership
