#include "apps/pliant/account.h"

#include <gtest/gtest.h>

namespace pliant::cli {
namespace {

wire::JobState state_of(std::uint64_t epoch, std::size_t members, std::vector<wire::Headcount> headcount) {
  wire::JobState state;
  state.view.epoch = epoch;
  state.view.members.resize(members);
  state.headcount = std::move(headcount);
  return state;
}

wire::Progress progress_of(std::uint64_t samples) {
  wire::Progress progress;
  progress.samples = samples;
  return progress;
}

TEST(Prices, AreOneOrOneForEachClass) {
  EXPECT_EQ(parse_prices("0.9").or_throw(), (Prices{{"", 0.9}}));
  EXPECT_EQ(parse_prices("spot=0.3,firm=1").or_throw(), (Prices{{"firm", 1}, {"spot", 0.3}}));
  EXPECT_EQ(parse_prices("0.9,spot=0").or_throw(), (Prices{{"", 0.9}, {"spot", 0}}));
  for (const char* wrong : {"", "-1", "spot=-0.1", "much", "0.9x", "=1", "spot=", "nan", "inf", "1,2", "a=1,a=2"})
    EXPECT_FALSE(parse_prices(wrong).ok()) << wrong;
}

TEST(Account, FollowsWhatTheCoordinatorSays) {
  Account account({{"spot", 3.6}, {"", 36}});
  account.on_state(0, state_of(0, 0, {{"spot", 2, 0, 0}}));
  account.on_state(10, state_of(1, 2, {{"firm", 1, 0, 0}, {"spot", 0, 2, 0}}));
  account.on_state(20, state_of(2, 1, {{"firm", 0, 1, 0}}));
  auto lines = account.lines(30);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].kind, "firm");
  EXPECT_DOUBLE_EQ(lines[0].worker_seconds(), 20);
  EXPECT_NEAR(lines[0].money, 0.2, 1e-12);
  EXPECT_DOUBLE_EQ(lines[1].worker_seconds(), 40) << "they have gone";
  EXPECT_NEAR(lines[1].money, 0.04, 1e-12);
}

TEST(Account, SaysWhatFixedSizesWouldHaveTaken) {
  Account account({{"", 3600}});
  account.on_state(0, state_of(1, 1, {{"", 0, 1, 0}}));
  account.on_progress(0, progress_of(0));
  account.on_progress(10, progress_of(1000));
  account.on_state(10, state_of(2, 2, {{"", 0, 2, 0}}));
  account.on_progress(11, progress_of(1100));  // a change of workers was in it
  account.on_progress(21, progress_of(3000));
  auto words = account.words(21);
  ASSERT_EQ(words.size(), 2U);
  EXPECT_EQ(words[0], "32.0 worker-seconds of work (100 % training, 0 % starting, 0 % waiting), 32 in money");
  EXPECT_EQ(words[1],
            "the same work with a fixed number of workers: 1 in 0:30 for 30.0 worker-seconds (30); 2 in 0:15 for 31.6 "
            "worker-seconds (31.58)");
}

TEST(Account, AClassWithoutAPriceIsNamed) {
  Account account({{"spot", 1}});
  account.on_state(0, state_of(1, 1, {{"firm", 0, 1, 0}, {"spot", 0, 1, 0}}));
  EXPECT_NE(account.words(10)[0].find("(no price for: firm)"), std::string::npos) << account.words(10)[0];
  account.set_price(10, 2);
  EXPECT_EQ(account.words(10)[0].find("no price"), std::string::npos);
}

TEST(Account, HasNothingToSayOfNothing) {
  EXPECT_TRUE(Account().words(5).empty());
  Account free;
  free.on_state(0, state_of(1, 1, {{"", 0, 1, 0}}));
  EXPECT_EQ(free.words(10),
            std::vector<std::string>{"10.0 worker-seconds of work (100 % training, 0 % starting, 0 % waiting)"});
}

}  // namespace
}  // namespace pliant::cli
