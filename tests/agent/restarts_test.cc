#include "agent/restarts.h"

#include <gtest/gtest.h>

namespace pliant::agent {
namespace {

using namespace std::chrono_literals;
using Meaning = Restarts::Meaning;

constexpr bool kByItself = true, kKilled = false;
constexpr Nanos kBegin = 1h;

TEST(Restarts, FiveDeathsWithoutAnAnswerAreHopeless) {
  Restarts restarts;
  for (int death = 1; death <= 4; ++death) {
    EXPECT_EQ(restarts.on_death(kBegin + death * 1s, kKilled), Meaning::nothing);
    EXPECT_TRUE(restarts.may_start(kBegin + death * 1s));
  }
  EXPECT_EQ(restarts.on_death(kBegin + 5s, kKilled), Meaning::hopeless);
}

TEST(Restarts, DeathsThatAreLongAgoDoNotCount) {
  Restarts restarts;
  for (int death = 0; death < 20; ++death)
    EXPECT_EQ(restarts.on_death(kBegin + death * Restarts::kTimeOfDeaths / 4 + Nanos(death), kKilled),
              Meaning::nothing);
}

TEST(Restarts, OfOneThatHasAnsweredThePausesGrow) {
  Restarts restarts;
  restarts.on_answer();
  for (int death = 1; death <= 4; ++death) {
    (void)restarts.on_death(kBegin, kKilled);
    EXPECT_TRUE(restarts.may_start(kBegin)) << death;
  }
  for (auto pause = Restarts::kFirstPause; pause < Restarts::kLongestPause; pause *= 2) {
    EXPECT_EQ(restarts.on_death(kBegin, kKilled), Meaning::nothing);
    EXPECT_FALSE(restarts.may_start(kBegin + pause - 1ms)) << seconds(pause);
    EXPECT_TRUE(restarts.may_start(kBegin + pause)) << seconds(pause);
  }
  for (int death = 0; death < 100; ++death) (void)restarts.on_death(kBegin, kKilled);
  EXPECT_FALSE(restarts.may_start(kBegin + Restarts::kLongestPause - 1ms));
  EXPECT_TRUE(restarts.may_start(kBegin + Restarts::kLongestPause));
}

TEST(Restarts, WhoeverKillsItIsNoTrouble) {
  Restarts restarts;
  restarts.on_answer();
  for (int death = 0; death < 20; ++death) EXPECT_EQ(restarts.on_death(kBegin, kKilled), Meaning::nothing);
}

TEST(Restarts, FiveOfItsOwnFailuresInARowAreTroubleWhichIsNamedOnce) {
  Restarts restarts;
  restarts.on_answer();
  for (int death = 1; death <= 4; ++death) EXPECT_EQ(restarts.on_death(kBegin, kByItself), Meaning::nothing);
  EXPECT_EQ(restarts.on_death(kBegin, kKilled), Meaning::nothing) << "they are not in a row";
  for (int death = 1; death <= 10; ++death)
    EXPECT_EQ(restarts.on_death(kBegin, kByItself), death == 5 ? Meaning::trouble : Meaning::nothing) << death;
}

}  // namespace
}  // namespace pliant::agent
