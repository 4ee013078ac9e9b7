// The table in agent/lead.h.
#include "agent/lead.h"

#include <gtest/gtest.h>

#include <csignal>

namespace pliant::agent {
namespace {

wire::JobState state_of(std::uint64_t epoch) {
  wire::JobState state;
  state.view.epoch = epoch;
  state.view.term = 1;
  return state;
}

wire::Over over_as(Outcome outcome) {
  wire::Over over;
  over.outcome = static_cast<std::uint8_t>(outcome);
  return over;
}

TEST(Lead, WhatTheCoordinatorSaysIsTheVerdict) {
  for (auto [said, status] :
       {std::pair(Outcome::finished, 0), std::pair(Outcome::failed, 1), std::pair(Outcome::stopped, 128 + SIGTERM)}) {
    Lead lead(2);
    EXPECT_EQ(lead.on_state(state_of(1)), StateNews::first);
    EXPECT_TRUE(lead.on_over(over_as(said)));
    EXPECT_FALSE(lead.on_over(over_as(said))) << "once";
    EXPECT_TRUE(lead.may_conclude(Nanos(0), true));
    EXPECT_TRUE(lead.conclude());
    EXPECT_FALSE(lead.conclude()) << "once";
    EXPECT_EQ(lead.verdict().outcome(), said);
    EXPECT_EQ(lead.verdict().exit_status(), status);
  }
}

TEST(Lead, WhatTheCoordinatorSawBeforeItHeardOfTheStopIsTheVerdict) {
  for (auto said : {Outcome::failed, Outcome::finished, Outcome::stopped}) {
    Lead lead(2);
    lead.on_state(state_of(1));
    EXPECT_TRUE(lead.stop(SIGINT));
    EXPECT_FALSE(lead.stop(SIGINT)) << "known";
    EXPECT_FALSE(lead.on_over(over_as(said))) << "it ends already";
    EXPECT_TRUE(lead.conclude());
    EXPECT_EQ(lead.verdict().outcome(), said);
    EXPECT_EQ(lead.verdict().exit_status(), said == Outcome::finished ? 0 : 128 + SIGINT);
    EXPECT_EQ(lead.failure(), said == Outcome::failed ? "no worker has finished it" : "");
  }
}

TEST(Lead, AStopBeforeTheJobHasBegunIsNoFailure) {
  Lead lead(2);
  lead.stop(SIGINT);
  lead.on_over(over_as(Outcome::failed));
  EXPECT_TRUE(lead.conclude());
  EXPECT_EQ(lead.verdict().outcome(), Outcome::stopped);
}

TEST(Lead, WhatHasFailedBeforeItIsStoppedHasFailed) {
  Lead lead(2);
  lead.on_state(state_of(1));
  lead.on_over(over_as(Outcome::failed));
  EXPECT_FALSE(lead.stop(SIGTERM)) << "it ends already";
  EXPECT_EQ(lead.phase(), Lead::Phase::stopping);
  EXPECT_TRUE(lead.conclude());
  EXPECT_EQ(lead.verdict().outcome(), Outcome::failed);
  EXPECT_EQ(lead.failure(), "no worker has finished it");
}

TEST(Lead, AViewThatTheCoordinatorHadNotKnownTakesTheEndBack) {
  Lead lead(2);
  lead.on_state(state_of(1));
  lead.on_over(over_as(Outcome::failed));
  EXPECT_EQ(lead.on_state(state_of(1)), StateNews::nothing);
  EXPECT_FALSE(lead.running()) << "the same view is no news";
  EXPECT_EQ(lead.on_state(state_of(2)), StateNews::newer);
  EXPECT_TRUE(lead.running());
  EXPECT_TRUE(lead.on_over(over_as(Outcome::finished)));
  EXPECT_TRUE(lead.conclude());
  EXPECT_EQ(lead.verdict().outcome(), Outcome::finished);
}

TEST(Lead, WaitsForTheLastWordOnAJobThatHasBegun) {
  Lead begun(2), unbegun(2);
  begun.on_state(state_of(1));
  for (auto* lead : {&begun, &unbegun}) lead->stop(0);
  EXPECT_FALSE(unbegun.may_conclude(Nanos(1), true)) << "nobody has said so";
  unbegun.on_state(state_of(0));
  EXPECT_TRUE(unbegun.may_conclude(Nanos(1), true));
  EXPECT_FALSE(unbegun.may_conclude(Nanos(1), false)) << "it may have begun since";
  unbegun.on_connected();
  EXPECT_FALSE(unbegun.may_conclude(Nanos(1), true)) << "another coordinator, who may know more";
  EXPECT_FALSE(begun.may_conclude(Nanos(1), true));
  EXPECT_FALSE(begun.may_conclude(Nanos(1) + Deaths::kLastWord - Nanos(1), true));
  EXPECT_TRUE(begun.may_conclude(Nanos(1) + Deaths::kLastWord, true));
}

TEST(Lead, HeedsAStopOnceAndMoreForce) {
  Lead lead(2);
  auto in_order = wire::stop_of(wire::Stopping::in_order), at_once = wire::stop_of(wire::Stopping::at_once);
  EXPECT_TRUE(lead.heeds(in_order));
  lead.stop(SIGTERM);
  lead.wish().ask(wire::Stopping::in_order);
  EXPECT_FALSE(lead.heeds(in_order)) << "its own word";
  EXPECT_TRUE(lead.heeds(at_once));
  Lead ended(2);
  ended.end();
  EXPECT_FALSE(ended.heeds(at_once)) << "there is nothing left to stop";
}

TEST(Lead, ABadEndOfWhatLeadsToAHostCountsOnlyAfterTheJob) {
  Lead running(2), ending(2), stopped(2);
  ending.end();
  stopped.stop(SIGTERM);
  for (auto* lead : {&running, &ending, &stopped}) lead->on_bad_end(9);
  EXPECT_EQ(running.verdict().exit_status(), 0);
  EXPECT_EQ(ending.verdict().exit_status(), 9);
  EXPECT_EQ(stopped.verdict().exit_status(), 128 + SIGTERM);
}

}  // namespace
}  // namespace pliant::agent
