// A supervision forgets workers that can concern nobody any more.
#include "agent/supervision_place.h"

namespace pliant::agent {
namespace {

class ForgetfulSupervisions : public Supervisions {
 protected:
  /// The next view, of a plan, in which these are.
  void hear_plan(const std::vector<std::uint64_t>& members) {
    wire::JobState state;
    state.view.term = 1;
    state.view.epoch = state.view.planned = epoch_ += 2;  // between two of them others have settled a loss
    for (auto id : members) state.view.members.push_back({id, static_cast<int>(100 + id), "@w"});
    hear(state);
  }
  /// A worker is killed, which the coordinator hears of, and another one is there for it.
  void replace(std::uint64_t id, std::uint64_t by) {
    driver_.notes[id] = {Outcome::running, epoch_};
    ends(id, kKilled);
    hear(wire::Parted{id, 0});
    hear(wire::Start{by});
    hear_plan({0, by});
  }
  std::uint64_t epoch_ = 1;
};

TEST_F(ForgetfulSupervisions, FewAreKnownAfterManyHaveEnded) {
  make_running({0, 1}, {0, 1});
  for (std::uint64_t id = 1; id < 200; ++id) replace(id, id + 1);
  EXPECT_EQ(supervision_->workers().size(), 2U);
  EXPECT_EQ(driver_.forgotten.size(), 199U);
  hear(wire::Start{7});
  EXPECT_EQ(supervision_->workers().size(), 2U) << "nobody is started again";
  ends(0, kKilled);
  ends(200, {3});
  hear_over(Outcome::failed);
  supervision_->on_time();
  ASSERT_TRUE(supervision_->judged());
  EXPECT_NE(driver_.said.find("failed: worker 0 ended"), std::string::npos) << driver_.said;
}

TEST_F(ForgetfulSupervisions, OfWhomTheCoordinatorHasNotHeardIsToldAgain) {
  make_running({0, 1}, {0, 1});
  ends(1, kKilled);
  hear_plan({0, 2});
  hear_plan({0, 3});
  driver_.letters.clear();
  supervision_->on_connected();
  ASSERT_EQ(driver_.sent<wire::Ended>().size(), 1U);
  EXPECT_EQ(driver_.sent<wire::Ended>()[0].id, 1U);
}

TEST_F(ForgetfulSupervisions, WhoIsNamedOrMayBeIsNotForgotten) {
  make_running({0, 1}, {0, 1});
  ends(1, kKilled);
  hear(wire::Parted{1, 0});
  hear_view({0});
  auto named = supervision_->word().state();
  named.view.epoch = named.view.planned = 2;  // a plan from before
  hear(named);
  EXPECT_TRUE(driver_.forgotten.empty());
  driver_.notes[1] = {Outcome::running, 9};
  hear_plan({0, 2});
  EXPECT_TRUE(driver_.forgotten.empty()) << "it died in a view that the coordinator has not heard of";
  driver_.notes[1] = {Outcome::finished, 1};
  hear_plan({0, 3});
  EXPECT_TRUE(driver_.forgotten.empty()) << "how the job ends may be its word";
}

/// It takes members for alive of whose end only its predecessor has heard.
TEST_F(ForgetfulSupervisions, ACoordinatorThatKnowsLessIsToldOnceMore) {
  make_running({0, 1}, {0, 1});
  replace(1, 2);
  replace(2, 3);
  ASSERT_EQ(driver_.forgotten.size(), 2U);
  ends(3, kKilled);
  hear(wire::Parted{3, 0});
  auto said = driver_.said;
  driver_.letters.clear();
  hear_view({0, 3});
  EXPECT_TRUE(driver_.sent<wire::Ended>().empty()) << "this one has heard of worker 3";
  supervision_->on_connected();
  driver_.letters.clear();
  for (int time = 0; time < 2; ++time) hear_view({0, 1, 3});
  auto told = driver_.sent<wire::Ended>();
  ASSERT_EQ(told.size(), 2U) << "once";
  EXPECT_EQ(told[0].id, 1U);
  EXPECT_EQ(told[0].view, 3U) << "in none after that";
  EXPECT_EQ(told[1].id, 3U);
  for (const auto& ended : told) EXPECT_EQ(ended.taken, 1) << "it has been counted";
  for (const auto& ended : told) hear(wire::Parted{ended.id, 0});
  EXPECT_EQ(driver_.said, said) << "people have heard of it";
}

}  // namespace
}  // namespace pliant::agent
