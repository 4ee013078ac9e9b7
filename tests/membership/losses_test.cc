#include "membership/losses.h"

#include <gtest/gtest.h>

namespace pliant::membership {
namespace {

TEST(Losses, ProofIsNotTakenBackAndTheLaterViewCounts) {
  Losses losses;
  losses.note(1, true, 5);
  losses.note(1, false, 3);
  EXPECT_TRUE(losses.ended(1));
  EXPECT_EQ(losses.last_view_of(1), 5U);
  losses.note(1, true, 6);
  EXPECT_EQ(losses.last_view_of(1), 6U);
}

TEST(Losses, ThatTheDeadHadNotVotedIsAFactAboutItsLastView) {
  Losses losses;
  losses.note(1, false, {5, true});
  EXPECT_FALSE(losses.died_unvoted_in(1, 5)) << "it may live";
  losses.note(1, true, 5);  // by somebody who does not know
  EXPECT_TRUE(losses.died_unvoted_in(1, 5));
  EXPECT_FALSE(losses.died_unvoted_in(1, 4));
  losses.note(1, true, 6);
  EXPECT_FALSE(losses.died_unvoted_in(1, 5) || losses.died_unvoted_in(1, 6));
}

TEST(Losses, WhoeverIsOutStaysSoUntilItIsTakenIn) {
  Losses losses;
  losses.note_out(1, 5);
  losses.heard_from(1);
  EXPECT_TRUE(losses.contains(1));
  EXPECT_TRUE(losses.is_out_of(1, 5));
  EXPECT_FALSE(losses.is_out_of(1, 6));
  EXPECT_FALSE(losses.ended(1));
  losses.drop_suspicions([](auto id) { return id == 1; });
  EXPECT_FALSE(losses.contains(1));
}

TEST(Losses, ASuspectThatSpeaksLivesTheDeadDoNot) {
  Losses losses;
  losses.note(1, false, 0);
  losses.note(2, true, 4);
  EXPECT_TRUE(losses.contains(1));
  EXPECT_FALSE(losses.ended(1));
  losses.heard_from(1);
  losses.heard_from(2);
  EXPECT_FALSE(losses.contains(1));
  EXPECT_TRUE(losses.ended(2));
  EXPECT_EQ(losses.last_view_of(1), 0U);
}

TEST(Losses, OnlySuspicionsAreOutOfDate) {
  Losses losses;
  losses.note(1, false, 0);
  losses.note(2, true, 0);
  losses.note(3, false, 0);
  losses.drop_suspicions([](auto id) { return id <= 2; });
  EXPECT_FALSE(losses.contains(1));
  EXPECT_TRUE(losses.contains(2));
  EXPECT_TRUE(losses.contains(3));
}

TEST(Losses, TheDeadAreForgottenWhenTheSecondViewHasNothingToDoWithThem) {
  Losses losses;
  losses.note(1, true, 4);
  losses.note(2, true, 4);
  losses.note(3, false, 0);
  const auto second = [](auto id) { return id == 2; };
  losses.on_settled(second);
  EXPECT_TRUE(losses.ended(1)) << "a switch that was agreed on before may name it";
  losses.on_settled(second);
  EXPECT_FALSE(losses.contains(1));
  EXPECT_TRUE(losses.ended(2)) << "it is in a view at hand";
  EXPECT_TRUE(losses.contains(3)) << "a suspicion has rules of its own";
}

TEST(Losses, WhatIsSaidOfTheDeadAgainIsKeptForAnotherView) {
  Losses losses;
  const auto nobody = [](auto) { return false; };
  losses.note(1, true, 4);
  losses.on_settled(nobody);
  losses.note(1, true, 5);
  losses.on_settled(nobody);
  EXPECT_EQ(losses.last_view_of(1), 5U);
  losses.on_settled(nobody);
  EXPECT_EQ(losses.size(), 0U);
}

}  // namespace
}  // namespace pliant::membership
