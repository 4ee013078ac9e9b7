#include "agent/job_word.h"

#include <gtest/gtest.h>

namespace pliant::agent {
namespace {

wire::JobState state_of(std::uint64_t epoch, std::uint32_t restarts = 0) {
  wire::JobState state;
  state.wanted = 2;
  state.view.epoch = epoch;
  state.view.restarts = restarts;
  return state;
}

TEST(JobWord, AStateIsNewsOnlyIfItsViewIs) {
  JobWord news(4);
  EXPECT_EQ(news.state().wanted, 4U);
  EXPECT_EQ(news.on_state(state_of(0)), StateNews::nothing);
  EXPECT_FALSE(news.has_begun());
  EXPECT_EQ(news.on_state(state_of(1)), StateNews::first);
  EXPECT_TRUE(news.has_begun());
  EXPECT_EQ(news.on_state(state_of(1)), StateNews::nothing);
  EXPECT_EQ(news.on_state(state_of(2)), StateNews::newer);
  EXPECT_EQ(news.on_state(state_of(3, 1)), StateNews::again);
  EXPECT_EQ(news.state().wanted, 2U);
}

TEST(JobWord, WhatWasSaidOfTheEndMayBeTakenBack) {
  JobWord news(1);
  EXPECT_EQ(news.outcome_or(Outcome::failed), Outcome::failed);
  EXPECT_EQ(news.reason(), "");
  wire::Over over;
  over.outcome = static_cast<std::uint8_t>(Outcome::finished);
  over.reason = "a\nb";
  news.on_over(over);
  EXPECT_TRUE(news.is_over());
  EXPECT_EQ(news.outcome_or(Outcome::failed), Outcome::finished);
  EXPECT_EQ(news.reason().find('\n'), std::string::npos);
  news.take_back_over();
  EXPECT_FALSE(news.is_over());
}

TEST(JobWord, AnOlderViewTakesNothingBack) {
  JobWord news(4);
  news.on_state(state_of(3));
  auto older = state_of(1);
  older.wanted = 7;
  EXPECT_EQ(news.on_state(older), StateNews::nothing);
  EXPECT_EQ(news.state().view.epoch, 3U);
  EXPECT_EQ(news.state().wanted, 7U);
  EXPECT_EQ(news.on_state(state_of(3)), StateNews::nothing);
}

TEST(JobWord, OfAStopTheCoordinatorHasTheLastWord) {
  JobWord news(1);
  EXPECT_EQ(news.outcome_of_a_stop(), Outcome::stopped);
  wire::Over over;
  over.outcome = static_cast<std::uint8_t>(Outcome::failed);
  news.on_over(over);
  EXPECT_EQ(news.outcome_of_a_stop(), Outcome::stopped) << "it had not begun";
  news.on_state(state_of(1));
  EXPECT_EQ(news.outcome_of_a_stop(), Outcome::failed);
}

}  // namespace
}  // namespace pliant::agent
