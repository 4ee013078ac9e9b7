#include "agent/deaths.h"

#include <gtest/gtest.h>

namespace pliant::agent {
namespace {

using namespace std::chrono_literals;

Death unknown_end(const Deaths& deaths, std::uint64_t id) {
  Ending ending;
  ending.unknown = true;
  return deaths.make(id, ending, 1s);
}

TEST(Deaths, ThoseOfOneLookAreSimultaneous) {
  Deaths deaths;
  auto before = deaths.make(1, {}, 1s);
  EXPECT_EQ(deaths.make(2, {}, 1s).turn, before.turn);
  deaths.next_turn();
  EXPECT_GT(deaths.make(3, {}, 1s).turn, before.turn);
}

TEST(Deaths, WhoSaidGoodbyeDidNotDie) {
  Deaths deaths;
  deaths.leave_open(unknown_end(deaths, 1), 0s);
  deaths.leave_open(unknown_end(deaths, 2), 0s);
  EXPECT_FALSE(deaths.explain(3, false)) << "nobody asked";
  EXPECT_FALSE(deaths.explain(1, true));
  EXPECT_TRUE(deaths.any_open());
  auto death = deaths.explain(2, false);
  ASSERT_TRUE(death);
  EXPECT_EQ(death->id, 2U);
  EXPECT_FALSE(deaths.any_open());
  EXPECT_TRUE(deaths.all().empty()) << "it is for the caller to add";
}

TEST(Deaths, WhoIsNotExplainedInTimeDied) {
  Deaths deaths;
  deaths.leave_open(unknown_end(deaths, 1), 10s);
  deaths.leave_open(unknown_end(deaths, 2), 11s);
  EXPECT_FALSE(deaths.overdue(10s + Deaths::kLastWord - 1ns));
  auto death = deaths.overdue(10s + Deaths::kLastWord);
  ASSERT_TRUE(death);
  EXPECT_EQ(death->id, 1U);
  EXPECT_FALSE(deaths.overdue(10s + Deaths::kLastWord));
  EXPECT_TRUE(deaths.any_open());
}

TEST(Deaths, OnlyWhatWasHeardIsAnswered) {
  Deaths deaths;
  deaths.told(1, false, 3s);
  EXPECT_TRUE(deaths.all_answered());
  EXPECT_EQ(deaths.told_at(), Nanos(3s));
  deaths.told(2, true, 4s);
  EXPECT_FALSE(deaths.all_answered());
  deaths.answered(2);
  EXPECT_TRUE(deaths.all_answered());
}

}  // namespace
}  // namespace pliant::agent
