// A voter's rows of the table in member.h, with every message delivered by hand; candidate_test.cc has the others.
#include "membership/member.h"

#include <gtest/gtest.h>

#include "membership/letters.h"

namespace pliant::membership {
namespace {

// ---- a loss ----

TEST(Member, TheLowestLeftFencesAndClaims) {
  Member one(1, kView);
  auto out = one.on_lost(3, false, kNow);
  EXPECT_TRUE(out.fence);
  EXPECT_EQ(letter_to<wire::Claim>(out, 2).term, 2U);
  EXPECT_EQ(letter_to<wire::Claim>(out, 3).recover, 1);  // it may live after all
  EXPECT_TRUE(one.recovering());
}

TEST(Member, OthersFenceAndWait) {
  Member two(2, kView);
  auto out = two.on_lost(3, false, kNow);
  EXPECT_TRUE(out.fence);
  EXPECT_TRUE(out.letters.empty());
  EXPECT_TRUE(two.recovering());
}

TEST(Member, ALossOutsideTheViewIsNone) {
  Member one(1, kView);
  EXPECT_FALSE(one.on_lost(9, true, kNow).fence);
  EXPECT_FALSE(one.recovering());
  EXPECT_TRUE(one.is_lost(9));
}

TEST(Member, WhoeverIsLowestAfterTheCandidateClaimsAtOnce) {
  auto two = follower(2, kView, 1, 5);
  auto out = two.on_lost(1, true, kNow);
  EXPECT_EQ(letter_to<wire::Claim>(out, 3).term, 6U);
  EXPECT_EQ(receivers_of<wire::Claim>(out), Ids{3});  // the proven dead are not asked
}

// ---- claims ----

TEST(Member, AClaimToRecoverFencesAndIsPromised) {
  Member two(2, kView);
  auto out = two.on_message(1, wire::Claim{5, 1}, kNow);
  EXPECT_TRUE(out.fence);
  auto said = letter_to<wire::Promise>(out, 1);
  EXPECT_EQ(said.term, 5U);
  EXPECT_EQ(view_in(said.view).hash(), kView.hash());
  EXPECT_EQ(said.stored.epoch, 0U);
  EXPECT_EQ(two.promised(), 5U);
  EXPECT_TRUE(two.recovering());
}

TEST(Member, AClaimToPlanIsPromisedAndNothingElse) {
  Member two(2, kView);
  auto out = two.on_message(1000, wire::Claim{5, 0}, kNow);
  EXPECT_FALSE(out.fence);
  EXPECT_EQ(letter_to<wire::Promise>(out, 1000).term, 5U);
  EXPECT_FALSE(two.recovering());
}

TEST(Member, ARecoveryIsNotDisturbedByPlans) {
  auto two = follower(2, kView, 1, 5);
  EXPECT_EQ(letter_to<wire::Decline>(two.on_message(1000, wire::Claim{9, 0}, kNow), 1000).term, 5U);
  EXPECT_EQ(two.promised(), 5U);
}

TEST(Member, ATermThatIsNotAboveIsDeclined) {
  auto two = follower(2, kView, 1, 5);
  for (std::uint64_t term : {4, 5}) {
    auto said = letter_to<wire::Decline>(two.on_message(3, wire::Claim{term, 1}, kNow), 3);
    EXPECT_EQ(said.term, 5U);
    EXPECT_EQ(view_in(said.view).hash(), kView.hash());
  }
}

TEST(Member, TheSameClaimIsPromisedAgain) {
  auto two = follower(2, kView, 1, 5);
  EXPECT_EQ(letter_to<wire::Promise>(two.on_message(1, wire::Claim{5, 1}, kNow), 1).term, 5U);
}

TEST(Member, ButNotOnceItHasDoneItsWork) {
  auto two = follower(2, kView, 1, 5);
  (void)two.on_message(1, in_force(view_of(5, 2, {1, 2})), kNow);
  auto out = two.on_message(1, wire::Claim{5, 1}, kNow);
  EXPECT_FALSE(out.fence);
  (void)letter_to<wire::Decline>(out, 1);
}

TEST(Member, WhoeverIsOutsideTheViewCannotFenceIt) {
  Member two(2, kView);
  auto out = two.on_message(9, wire::Claim{5, 1}, kNow);
  EXPECT_FALSE(out.fence);
  EXPECT_EQ(view_in(letter_to<wire::Decline>(out, 9).view).hash(), kView.hash());
}

TEST(Member, TheDeadHaveNoVote) {
  Member one(1, kView);
  (void)one.on_lost(3, true, kNow);
  auto out = one.on_message(3, promise(2, kView), kNow);
  EXPECT_TRUE(out.letters.empty());
}

TEST(Member, ANewcomerPromisesAndGoesOnWaiting) {
  Member nine(9, kNone);
  auto out = nine.on_message(1, wire::Claim{5, 1}, kNow);
  EXPECT_FALSE(out.fence);
  EXPECT_EQ(letter_to<wire::Promise>(out, 1).view.epoch, 0U);
  EXPECT_FALSE(nine.recovering());
}

// ---- the voter ----

TEST(Member, WhoeverComesBackDoesNotVoteInAViewThatItFellOutOf) {
  auto past = kView;
  past.epoch += 1;
  Member two(2, View{}, false, past);  // views up to this one are over for it
  (void)two.on_message(1, wire::Claim{9, 1}, kNow);
  (void)two.on_message(1, wire::InForce{kView.term, notice_of(kView)}, kNow);
  EXPECT_TRUE(two.view().members.empty());
  auto proposed = kView;
  proposed.epoch += 1;
  auto out = two.on_message(1, wire::Propose{9, notice_of(proposed)}, kNow);
  EXPECT_FALSE(two.stored());
  for (const auto& letter : out.letters) EXPECT_FALSE(std::holds_alternative<wire::Stored>(letter.message));
}

/// Whoever decided the view may have told nobody but the one that is not in it, and died.
TEST(Member, WhoeverWasLeftBehindKnowsTheViewThatTheOthersMayNotKnow) {
  const auto large = view_of(2, 2, {0, 1, 2, 4});
  const auto next = view_of(5, 3, {0, 2, 4});
  Member one(1, View{}, false, next);
  auto two = follower(2, large, 0, 5);
  (void)two.on_lost(0, true, kNow, large.epoch);
  (void)two.on_lost(1, false, kNow);  // which is out of reach for a while
  (void)two.on_message(4, promise(two.promised(), large), kNow);
  auto out =
      two.on_message(1, letter_to<wire::Promise>(one.on_message(2, wire::Claim{two.promised(), 1}, kNow), 2), kNow);
  EXPECT_EQ(two.view().hash(), next.hash());
  EXPECT_EQ(ids_of(view_in(letter_to<wire::Propose>(out, 4).view)), (Ids{2, 4}));
}

TEST(Member, AProposalUnderThePromisedTermIsStored) {
  auto two = follower(2, kView, 1, 5);
  const auto next = view_of(5, 2, {1, 2});
  auto said = letter_to<wire::Stored>(two.on_message(1, proposal(5, next), kNow), 1);
  EXPECT_EQ(said.term, 5U);
  EXPECT_EQ(said.hash, next.hash());
  // and from then on every promise tells of it
  auto promised = letter_to<wire::Promise>(two.on_message(3, wire::Claim{6, 1}, kNow), 3);
  EXPECT_EQ(view_in(promised.stored).hash(), next.hash());
  EXPECT_EQ(promised.stored_under, 5U);
}

TEST(Member, AnyOtherProposalIsNot) {
  auto two = follower(2, kView, 1, 5);
  const auto next = view_of(4, 2, {2, 3});
  (void)letter_to<wire::Decline>(two.on_message(3, proposal(4, next), kNow), 3);
  (void)letter_to<wire::Decline>(two.on_message(3, proposal(5, next), kNow), 3);
  EXPECT_FALSE(two.stored());
  EXPECT_TRUE(two.on_message(1, proposal(5, view_of(5, 3, {1, 2})), kNow).letters.empty());  // its base is unknown
}

TEST(Member, AViewInForceIsEntered) {
  auto two = follower(2, kView, 1, 5);
  auto out = two.on_message(1, in_force(view_of(5, 2, {1, 2})), kNow);
  ASSERT_TRUE(out.enter);
  EXPECT_FALSE(out.fence);
  EXPECT_EQ(two.view().epoch, 2U);
  EXPECT_FALSE(two.on_message(1, in_force(view_of(5, 2, {1, 2})), kNow).enter);  // once
}

TEST(Member, AViewOfATermBelowThePromiseIsOnlyTheBase) {
  auto two = follower(2, kView, 1, 5);
  auto out = two.on_message(3, in_force(view_of(4, 2, {1, 2, 3})), kNow);
  EXPECT_FALSE(out.enter);
  EXPECT_TRUE(two.recovering());
  EXPECT_EQ(two.view().epoch, 2U);
}

TEST(Member, SomethingStoredToFollowAViewForbidsToEnterIt) {
  Member two(2, view_of(2, 2, {1, 2, 3}));
  (void)two.on_message(1, wire::Claim{5, 1}, kNow);
  (void)two.on_message(1, proposal(5, view_of(5, 3, {1, 2})), kNow);
  auto out = two.on_message(3, in_force(view_of(6, 2, {1, 2, 3})), kNow);  // decided once more by others
  EXPECT_FALSE(out.enter);
  EXPECT_EQ(two.stored()->epoch, 3U);
}

TEST(Member, ASuspectThatWasTakenInIsNoLongerSuspected) {
  Member two(2, kView);
  (void)two.on_lost(3, false, kNow);
  EXPECT_TRUE(two.on_message(1, in_force(view_of(5, 2, {1, 2, 3})), kNow).enter);
  EXPECT_FALSE(two.is_lost(3));
}

TEST(Member, ASuspectThatSpeaksIsNoLongerSuspected) {
  Member two(2, kView);
  (void)two.on_lost(1, false, kNow);  // claims, as the lowest left
  (void)two.on_message(1, wire::Decline{2, notice_of(kView)}, kNow);
  EXPECT_FALSE(two.is_lost(1));
  EXPECT_TRUE(two.on_time(Member::kPatience).letters.empty());  // after the lower one, which lives
}

TEST(Member, ADeathBeginsTheNextRecoveryAtOnce) {
  Member two(2, kView);
  (void)two.on_lost(1, true, kNow);
  auto out = two.on_message(3, in_force(view_of(5, 2, {1, 2, 3})), kNow);
  EXPECT_FALSE(out.enter);
  EXPECT_EQ(letter_to<wire::Claim>(out, 3).term, 6U);
}

TEST(Member, ANewerViewWithoutUsIsTheEnd) {
  Member two(2, kView);
  EXPECT_TRUE(two.on_message(1, in_force(view_of(5, 2, {1, 3})), kNow).evicted);
}

TEST(Member, ANewcomerEntersTheViewThatTakesItIn) {
  Member nine(9, kNone);
  EXPECT_FALSE(nine.on_message(1, in_force(kView), kNow).evicted);
  EXPECT_EQ(nine.on_message(1, in_force(view_of(5, 2, {1, 9})), kNow).enter->epoch, 2U);
}

// ---- plans and switches ----

TEST(Member, APlanIsKeptIfItFits) {
  Member two(2, kView);
  (void)two.on_message(1000, wire::Claim{5, 0}, kNow);
  const auto next = notice_of(view_of(5, 2, {1, 2, 3, 4}));
  EXPECT_FALSE(two.on_plan({4, kView.hash(), next}));
  EXPECT_FALSE(two.on_plan({5, 12345, next}));
  EXPECT_FALSE(two.on_plan({5, kView.hash(), notice_of(view_of(5, 4, {1}))}));
  EXPECT_TRUE(two.on_plan({5, kView.hash(), next}));
  EXPECT_TRUE(two.on_plan({6, kView.hash(), next}));
  EXPECT_EQ(two.promised(), 6U);
  ASSERT_TRUE(two.plan());
  (void)two.on_lost(3, false, kNow);
  EXPECT_FALSE(two.plan());
  EXPECT_FALSE(two.on_plan({7, kView.hash(), next}));
}

TEST(Member, ASwitchIsEnteredOnceEnoughHaveEndedTheStep) {
  Member one(1, kView);
  const auto next = view_of(5, 2, {1, 2, 9});
  auto out = one.adopt(next, kNow);
  EXPECT_EQ(receivers_of<wire::Stored>(out), (Ids{2, 3}));
  EXPECT_FALSE(out.enter);
  EXPECT_FALSE(one.on_message(2, wire::Stored{1, next.hash()}, kNow).enter);
  out = one.on_message(3, wire::Stored{1, next.hash()}, kNow);
  EXPECT_EQ(out.enter->hash(), next.hash());
  EXPECT_EQ(receivers_of<wire::InForce>(out), (Ids{3, 9}));  // who goes and who comes
}

TEST(Member, OthersMayHaveEndedTheStepBefore) {
  Member one(1, view_of(1, 1, {1, 2}));
  const auto next = view_of(5, 2, {1, 2, 9});
  (void)one.on_message(2, wire::Stored{1, next.hash()}, kNow);
  EXPECT_TRUE(one.adopt(next, kNow).enter);
}

TEST(Member, WhoeverLeavesStaysUntilItIsTold) {
  Member two(2, view_of(1, 1, {1, 2}));
  const auto next = view_of(1, 2, {1});
  EXPECT_FALSE(two.adopt(next, kNow).evicted);
  EXPECT_FALSE(two.on_message(1, wire::Stored{1, next.hash()}, kNow).evicted);
  EXPECT_EQ(receivers_of<wire::Stored>(two.on_time(Member::kPatience)), Ids{1});
  EXPECT_TRUE(two.on_message(1, in_force(next), kNow).evicted);
}

TEST(Member, WhoeverIsSureTellsThoseWhoAsk) {
  Member one(1, view_of(1, 2, {1, 2}));
  auto out = one.on_message(2, wire::Stored{1, one.view().hash()}, kNow);
  EXPECT_EQ(letter_to<wire::InForce>(out, 2).view.epoch, 2U);
  EXPECT_EQ(letter_to<wire::InForce>(one.on_message(3, wire::Stored{1, 12345}, kNow), 3).view.epoch, 2U);
}

/// Somebody who was left behind comes back: connections to it were lost and made again while it was outside.
TEST(Member, ASuspicionOfANewcomerEndsWhenItIsFound) {
  Member two(2, view_of(1, 1, {1, 2}));
  const auto next = view_of(5, 2, {1, 2, 9});
  (void)two.on_lost(9, false, kNow);
  two.on_found(9);
  (void)two.on_message(1, wire::Stored{1, next.hash()}, kNow);
  EXPECT_TRUE(two.adopt(next, kNow).enter);

  Member one(1, kView);
  (void)one.on_lost(3, false, kNow);
  one.on_found(3);  // a member of the view: the recovery has begun
  EXPECT_TRUE(one.is_lost(3));
}

TEST(Member, ALossDuringASwitchIsSettledByARecovery) {
  Member one(1, kView);
  const auto next = view_of(5, 2, {1, 2, 3, 9});
  (void)one.adopt(next, kNow);
  auto out = one.on_lost(3, false, kNow);
  EXPECT_TRUE(out.fence);
  EXPECT_EQ(receivers_of<wire::Claim>(out), (Ids{2, 3}));
  out = one.on_message(2, promise(6, kView), kNow);
  EXPECT_TRUE(out.letters.empty());  // not the term it claimed
  out = one.on_message(2, promise(2, kView), kNow);
  EXPECT_EQ(view_in(letter_to<wire::Propose>(out, 2).view).hash(), view_of(2, 2, {1, 2, 3, 9}).hash());
}

TEST(Member, ALossThatLeavesEnoughEndsTheSwitchAndBeginsARecovery) {
  Member one(1, kView);
  const auto next = view_of(5, 2, {1, 2, 3});
  (void)one.adopt(next, kNow);
  (void)one.on_message(2, wire::Stored{1, next.hash()}, kNow);
  auto out = one.on_lost(3, true, kNow);
  EXPECT_FALSE(out.enter);
  EXPECT_EQ(one.view().hash(), next.hash());
  EXPECT_EQ(receivers_of<wire::Claim>(out), Ids{2});
}

/// Whoever has died may have gone on in the next view, so that its death proves nothing about this one.
TEST(Member, WhatAllHaveStoredIsInForceAlsoAfterALoss) {
  Member two(2, kView);
  const auto next = view_of(1, 2, {1, 2});
  (void)two.adopt(next, kNow);
  (void)two.on_message(1, wire::Stored{1, next.hash()}, kNow);
  ASSERT_TRUE(two.on_lost(1, true, kNow, 2).fence);
  ASSERT_TRUE(two.recovering());
  auto out = two.on_message(3, wire::Stored{1, next.hash()}, kNow);
  EXPECT_EQ(two.view().epoch, 3U) << "on from the next view, without the dead";
  EXPECT_EQ(ids_of(*out.enter), Ids{2});
}

/// Of five two are dead, and two are out of reach.
TEST(Member, WhoDiedWithoutAVoteNeedNotBeOutvoted) {
  for (bool unvoted : {false, true}) {
    Member three(3, kLarge);
    (void)three.on_lost(1, true, kNow, {1, unvoted});
    (void)three.on_lost(2, true, kNow, {1, unvoted});
    (void)three.on_lost(5, false, kNow);
    auto out = three.on_message(4, promise(three.promised(), kLarge), kNow);
    EXPECT_EQ(receivers_of<wire::Propose>(out), unvoted ? Ids{4} : Ids{});
  }
}

TEST(Member, WhoHasVotedKnowsIt) {
  Member two(2, kView);
  EXPECT_FALSE(two.has_voted());
  (void)two.on_message(1000, wire::Claim{5, 0}, kNow);
  EXPECT_FALSE(two.has_voted()) << "a term for plans";
  (void)two.on_message(1, wire::Claim{6, 1}, kNow);
  EXPECT_TRUE(two.has_voted());
  (void)two.on_message(1, in_force(view_of(6, 2, {1, 2})), kNow);
  EXPECT_FALSE(two.has_voted()) << "on what follows that one";
  (void)two.adopt(view_of(6, 3, {2}), kNow);
  EXPECT_TRUE(two.has_voted());
}

// ---- time ----

TEST(Member, AfterSilenceOthersClaimInTurn) {
  auto two = follower(2, kLarge, 1, 5);
  auto three = follower(3, kLarge, 1, 5);
  EXPECT_TRUE(two.on_time(Member::kPatience * 2 - Nanos(1)).letters.empty());
  EXPECT_EQ(letter_to<wire::Claim>(two.on_time(Member::kPatience * 2), 1).term, 6U);
  EXPECT_TRUE(three.on_time(Member::kPatience * 2).letters.empty());
  EXPECT_EQ(letter_to<wire::Claim>(three.on_time(Member::kPatience * 3), 1).term, 6U);
}

TEST(Member, TheSteadyAndNewcomersSayNothing) {
  EXPECT_TRUE(Member(1, kView).on_time(Member::kPatience * 9).letters.empty());
  EXPECT_TRUE(Member(9, kNone).on_time(Member::kPatience * 9).letters.empty());
}

}  // namespace
}  // namespace pliant::membership
