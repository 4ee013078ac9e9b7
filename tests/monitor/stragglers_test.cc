#include "monitor/stragglers.h"

#include <gtest/gtest.h>

namespace pliant::monitor {
namespace {

using Rates = std::map<std::uint64_t, double>;

TEST(Stragglers, HalfTheSpeedIsNoticedAndALittleLessIsNot) {
  Stragglers stragglers;
  for (int i = 0; i < 30; ++i) stragglers.add({{0, 100}, {1, 100}, {2, 85}, {3, 50}});
  EXPECT_EQ(stragglers.found(), std::vector<std::uint64_t>{3});
  EXPECT_NEAR(stragglers.speed(3), 50 / 92.5, 1e-9);
}

TEST(Stragglers, OneSlowStepIsNone) {
  Stragglers stragglers;
  for (int i = 0; i < 30; ++i) stragglers.add({{0, 100}, {1, 100}, {2, i == 20 ? 10.0 : 100}});
  EXPECT_TRUE(stragglers.found().empty());
}

TEST(Stragglers, TheFirstWordCountsInFullAndThenTheyFade) {
  Stragglers stragglers;
  for (int i = 0; i < 2; ++i) stragglers.add({{0, 100}, {1, 100}, {2, 1}});  // it has just come
  EXPECT_EQ(stragglers.speed(2), 1);
  stragglers.add({{0, 100}, {1, 100}, {2, 50}});
  EXPECT_DOUBLE_EQ(stragglers.speed(2), 0.5);
  stragglers.add({{0, 100}, {1, 100}, {2, 100}});
  EXPECT_DOUBLE_EQ(stragglers.speed(2), 0.55);
  EXPECT_TRUE(stragglers.found().empty());  // it was not seen for long
}

TEST(Stragglers, WhoHasGoneIsForgottenAndAloneNobodyIsSlow) {
  Stragglers stragglers;
  for (int i = 0; i < 30; ++i) stragglers.add({{0, 100}, {1, 100}, {2, 30}});
  stragglers.add({{0, 100}, {1, 100}});
  EXPECT_EQ(stragglers.speed(2), 1);
  stragglers.add({{1, 1}});
  EXPECT_TRUE(stragglers.found().empty());
}

TEST(Stragglers, MoveToAnotherWorkerToTheLastBit) {
  Stragglers here, there;
  for (int i = 0; i < 30; ++i) here.add({{0, 100}, {1, 100.0 / 3}, {2, 97}});
  there.load(here.save());
  for (std::uint64_t worker : {0, 1, 2}) EXPECT_EQ(there.speed(worker), here.speed(worker));
  EXPECT_EQ(there.found(), here.found());
}

TEST(Stragglers, TheSlowestComesFirst) {
  Stragglers stragglers;
  for (int i = 0; i < 30; ++i) stragglers.add({{0, 100}, {1, 40}, {2, 100}, {3, 20}, {4, 100}});
  EXPECT_EQ(stragglers.found(), (std::vector<std::uint64_t>{3, 1}));
}

}  // namespace
}  // namespace pliant::monitor
