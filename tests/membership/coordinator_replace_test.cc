// Workers that are to be replaced, spares, slots that come and go, and slots that cool down.
#include <gtest/gtest.h>

#include <chrono>

#include "membership/coordinator_job.h"

namespace pliant::membership {
namespace {

using namespace std::chrono_literals;

class ReplaceTest : public CoordinatorTest {
 protected:
  static constexpr Link kFirst = 2000, kSecond = 2001;
  void at(Nanos now) { out_ = machine_->on_time(now); }
  void agent(Link link, const std::string& host, std::uint32_t slots, const std::string& kind = "") {
    say(link, wire::AgentHello{"job", host, slots, kind});
    say(link, wire::AgentHello{"job", host, slots, kind});
  }
  Ids started_at(Link link) const {
    Ids ids;
    for (const auto& start : sent<wire::Start>(link)) ids.push_back(start.id);
    return ids;
  }
  void replace(std::uint64_t id, std::uint64_t by = 0) { say(link_of(by), wire::Replace{id}); }
  /// Workers 0 … on hosts a and b, by their slots.
  void make_on_two(std::uint32_t on_a, std::uint32_t on_b, CoordinatorOptions options, std::uint32_t slots_b) {
    make(options);
    agent(kFirst, "a", on_a);
    agent(kSecond, "b", slots_b);
    for (std::uint64_t id = 0; id < on_a + on_b; ++id) {
      say(id < on_a ? kFirst : kSecond, wire::Started{id, static_cast<int>(100 + id)});
      join(id);
    }
    ASSERT_TRUE(machine_->formed());
  }
};

TEST_F(ReplaceTest, AReplacementIsStartedFirst) {
  make_running({.wanted = 3});
  replace(1);
  EXPECT_EQ(started(), (Ids{3}));
  EXPECT_TRUE(planned().empty());
  say(kAgent, wire::Started{3, 103});
  join(3);
  EXPECT_TRUE(planned().empty()) << "it is there, but not ready";
  say(link_of(3), wire::Ready{"w[3]"});
  EXPECT_EQ(planned(), (Ids{0, 2, 3}));
  EXPECT_TRUE(sent_to_worker<wire::Over>(1).empty()) << "it is still needed";
  adopt_plan(0);
  EXPECT_EQ(sent_to_worker<wire::Over>(1).size(), 1U);
  EXPECT_TRUE(started().empty());
}

TEST_F(ReplaceTest, WhoWasReplacedCostsNothingAndIsNotTakenInAgain) {
  make_running({.wanted = 3, .restarts = 5});
  replace(1);
  say(kAgent, wire::Started{3, 103});
  join_ready(3);
  adopt_plan(0);
  say(link_of(1), wire::Ready{"w[3]"});  // it was detached
  EXPECT_TRUE(planned().empty());
  say(link_of(1), wire::Bye{});
  end(1, true);
  EXPECT_EQ(machine_->memory().wanted, 3U);
  EXPECT_EQ(machine_->memory().restarts, 5);
  EXPECT_TRUE(started().empty());
}

TEST_F(ReplaceTest, ASpareTakesThePlaceAtOnceAndIsReplacedItself) {
  make_running({.wanted = 2, .spare = 1});
  EXPECT_EQ(started(), (Ids{2})) << "spares come once the job has begun";
  say(kAgent, wire::Started{2, 102});
  join_ready(2);
  EXPECT_TRUE(planned().empty());
  replace(1);
  EXPECT_EQ(planned(), (Ids{0, 2}));
  EXPECT_EQ(started(), (Ids{3}));
}

TEST_F(ReplaceTest, OfSeveralOnlyAsManyGoAsCanBeReplaced) {
  make_running({.wanted = 4});
  replace(1);
  replace(2);
  say(kAgent, wire::Started{4, 104});
  join_ready(4);
  EXPECT_EQ(planned(), (Ids{0, 1, 3, 4}));
}

TEST_F(ReplaceTest, WithoutRoomNobodyGoes) {
  make_on_two(2, 1, {.wanted = 3}, 1);
  replace(1);
  EXPECT_TRUE(planned().empty());
  EXPECT_TRUE(started_at(kFirst).empty() && started_at(kSecond).empty());
  agent(2002, "c", 1);
  EXPECT_EQ(started_at(2002), (Ids{3}));
}

TEST_F(ReplaceTest, TheReplacementComesOnAnotherHostIfThatCanBe) {
  make({.wanted = 2});
  agent(kFirst, "a", 4);
  agent(kSecond, "b", 4);
  for (std::uint64_t id : {0, 1}) join(id);
  replace(1);
  EXPECT_EQ(started_at(kSecond), (Ids{2}));
}

TEST_F(ReplaceTest, WhoIsNotTrainingCannotBeReplaced) {
  make_running({.wanted = 2});
  replace(9);
  EXPECT_TRUE(started().empty());
}

TEST_F(ReplaceTest, AHostThatIsTakenAwayDoesNotLowerWhatIsWanted) {
  make_on_two(2, 2, {.wanted = 4}, 2);
  say(kSecond, wire::AgentHello{"job", "b", 0});
  for (std::uint64_t id : {2, 3}) say(link_of(id), wire::Bye{});
  adopt(view_of(1, 2, {0, 1}), 0);
  for (std::uint64_t id : {2, 3}) say(kSecond, wire::Ended{id, 1, "exit code 0"});
  out_ = machine_->on_closed(kSecond);
  EXPECT_EQ(machine_->memory().wanted, 4U);
  EXPECT_TRUE(started_at(kFirst).empty());
  agent(2002, "c", 2);
  EXPECT_EQ(started_at(2002), (Ids{4, 5}));
}

TEST_F(ReplaceTest, SlotsThatComeBackBeforeTheirWorkersHaveGoneAreFilledAgain) {
  make_on_two(2, 2, {.wanted = 4}, 2);
  say(kSecond, wire::AgentHello{"job", "b", 0});
  for (std::uint64_t id : {2, 3}) say(link_of(id), wire::Bye{});
  adopt(view_of(1, 2, {0, 1}), 0);
  say(kSecond, wire::AgentHello{"job", "b", 2});
  EXPECT_TRUE(started_at(kSecond).empty()) << "their slots are still theirs";
  for (std::uint64_t id : {2, 3}) say(kSecond, wire::Ended{id, 1, "exit code 0", 1});
  EXPECT_EQ(machine_->memory().wanted, 4U);
  EXPECT_EQ(started_at(kSecond), (Ids{5}));  // of the last event; 4 was started when the first had gone
}

TEST_F(ReplaceTest, WhoDiesWhileAnotherHasToGoDoesNotTakeItsPlace) {
  make_on_two(2, 2, {.wanted = 4}, 2);
  for (std::uint32_t slots : {1, 2}) say(kSecond, wire::AgentHello{"job", "b", slots});
  say(link_of(3), wire::Bye{});
  adopt(view_of(1, 2, {0, 1}), 0);
  say(kSecond, wire::Ended{2, 0, "killed by signal 9"});
  EXPECT_EQ(started_at(kSecond), (Ids{4}));
  say(kSecond, wire::Ended{3, 1, "exit code 0", 1});
  EXPECT_EQ(started_at(kSecond), (Ids{5}));
  EXPECT_EQ(machine_->memory().wanted, 4U);
}

TEST_F(ReplaceTest, WhoLeavesAHostWithRoomLowersIt) {
  make_on_two(2, 2, {.wanted = 4}, 2);
  say(link_of(3), wire::Bye{});
  adopt(view_of(1, 2, {0, 1, 2}), 0);
  say(kSecond, wire::Ended{3, 1, "exit code 0"});
  EXPECT_EQ(machine_->memory().wanted, 3U);
}

TEST_F(ReplaceTest, WhatWasAskedOfAHostThatIsGoneIsAskedElsewhere) {
  make_on_two(1, 1, {.wanted = 2}, 2);
  resize(3);
  ASSERT_EQ(started_at(kSecond), (Ids{2}));
  agent(2002, "c", 2);
  out_ = machine_->on_closed(kSecond);  // it never said that it has started
  EXPECT_EQ(started_at(2002), (Ids{3}));
}

TEST_F(ReplaceTest, ASlotThatFailsAgainAndAgainCoolsDown) {
  make_on_two(1, 1, {.wanted = 2, .restarts = 9}, 1);
  at(1s);
  auto epoch = std::uint64_t{2};
  std::uint64_t id = 1;
  auto fail = [&](std::uint64_t next) {
    say(kSecond, wire::Ended{id, 0, "exit code 1"});
    if (id == 1) adopt(view_of(2, epoch++, {0}), 0);
    id = next;
  };
  fail(2);
  EXPECT_EQ(started_at(kSecond), (Ids{2})) << "once is nothing";
  fail(3);
  EXPECT_TRUE(started_at(kSecond).empty());
  at(1900ms);
  EXPECT_TRUE(started_at(kSecond).empty());
  at(2s);
  EXPECT_EQ(started_at(kSecond), (Ids{3}));
  fail(4);
  at(3900ms);
  EXPECT_TRUE(started_at(kSecond).empty()) << "twice as long";
  at(4s);
  EXPECT_EQ(started_at(kSecond), (Ids{4}));
  at(100s);
  fail(5);
  EXPECT_EQ(started_at(kSecond), (Ids{5})) << "that one has worked for long";
}

TEST_F(ReplaceTest, ColdSlotsLeaveTheOthersAlone) {
  make_on_two(1, 1, {.wanted = 2, .restarts = 9}, 3);
  say(kSecond, wire::Ended{1, 0, "exit code 1"});
  adopt(view_of(2, 2, {0}), 0);
  for (std::uint64_t id : {2, 3}) {
    EXPECT_EQ(started_at(kSecond), (Ids{id}));
    say(kSecond, wire::Ended{id, 0, "exit code 1"});
  }
  EXPECT_EQ(started_at(kSecond), (Ids{4})) << "two of three are cold";
  say(kSecond, wire::Ended{4, 0, "exit code 1"});
  EXPECT_TRUE(started_at(kSecond).empty());
}

TEST_F(ReplaceTest, WhoIsNotNeededGoesAfterAWhile) {
  make_running({.wanted = 3, .warm = 10s});
  at(100s);
  resize(1);
  adopt_plan(0);
  for (std::uint64_t id : {1, 2}) say(link_of(id), wire::Ready{"w[3]"});
  at(105s);
  EXPECT_TRUE(workers_sent<wire::Over>().empty());
  resize(2);
  EXPECT_EQ(planned(), (Ids{0, 1})) << "it is warm";
  adopt_plan(0);
  at(114s);
  EXPECT_TRUE(workers_sent<wire::Over>().empty()) << "what waits now began to wait when the plan was done";
  at(125s);
  EXPECT_EQ(workers_sent<wire::Over>(), (Ids{2}));
  say(link_of(2), wire::Bye{});
  end(2, true);
  EXPECT_EQ(machine_->memory().wanted, 2U) << "that was not its doing";
  resize(3);
  EXPECT_EQ(started(), (Ids{3}));
}

TEST_F(ReplaceTest, WhenTheSizeIsFoundNobodyWaits) {
  make_running({.wanted = 3});
  resize(1);
  adopt_plan(0);
  for (std::uint64_t id : {1, 2}) say(link_of(id), wire::Ready{"w[3]"});
  EXPECT_TRUE(workers_sent<wire::Over>().empty());
  say(link_of(0), wire::Resize{1, 1});
  EXPECT_EQ(workers_sent<wire::Over>(), (Ids{1, 2}));
}

TEST_F(ReplaceTest, SparesStay) {
  make_running({.wanted = 1, .spare = 1, .warm = 1s});
  say(kAgent, wire::Started{1, 101});
  join_ready(1);
  at(5s);
  at(50s);
  EXPECT_TRUE(workers_sent<wire::Over>().empty());
}

TEST_F(ReplaceTest, PeopleMayAskForAReplacement) {
  make_running({.wanted = 2});
  say(77, wire::Replace{9});
  EXPECT_EQ(sent<wire::Answer>(77).at(0).ok, 0);
  say(77, wire::Replace{1});
  EXPECT_EQ(sent<wire::Answer>(77).at(0).ok, 1);
  EXPECT_EQ(started(), (Ids{2}));
}

TEST_F(ReplaceTest, EverybodyIsCountedByClassAndByWhatTheyDo) {
  make({.wanted = 3, .start = 2});
  agent(kFirst, "a", 2, "spot");
  agent(kSecond, "b", 2, "firm");
  EXPECT_EQ(sent<wire::JobState>(kSecond).at(0).headcount,
            (std::vector<wire::Headcount>{{"firm", 1, 0, 0}, {"spot", 2, 0, 0}}));
  join(0);
  join(1);
  EXPECT_EQ(sent<wire::JobState>(kSecond).at(0).headcount,
            (std::vector<wire::Headcount>{{"firm", 1, 0, 0}, {"spot", 0, 2, 0}}));
  resize(2);
  join_ready(2);
  EXPECT_EQ(sent<wire::JobState>(kSecond).at(0).headcount,
            (std::vector<wire::Headcount>{{"firm", 0, 0, 1}, {"spot", 0, 2, 0}}));
  say(kSecond, wire::Ended{2, 1, "exit code 0"});
  EXPECT_EQ(sent<wire::JobState>(kSecond).at(0).headcount, (std::vector<wire::Headcount>{{"spot", 0, 2, 0}}));
}

TEST_F(CoordinatorTest, TheOnlyMemberStaysUntilTheOneInItsPlaceHasTheState) {
  make_running({.wanted = 1, .most = 4});
  say(77, wire::Replace{0});
  EXPECT_EQ(started(), (Ids{1}));
  say(kAgent, wire::Started{1, 101});
  join_ready(1);
  EXPECT_EQ(planned(), (Ids{0, 1})) << "a view without any of its predecessor's members cannot follow it";
  adopt_plan(0);
  EXPECT_EQ(planned(), (Ids{1}));
  adopt_plan(1);
  EXPECT_EQ(sent_to_worker<wire::Over>(0).size(), 1U);
}

TEST_F(CoordinatorTest, ANewcomerThatAMemberCannotReachDoesNotKeepOthersOut) {
  make_running({.wanted = 2});
  (void)resize(4);
  join_ready(2);
  join_ready(3);
  EXPECT_EQ(planned(), (Ids{0, 1, 2, 3}));
  say(link_of(3), wire::Unreached{2});
  EXPECT_TRUE(planned().empty()) << "only members know";
  say(link_of(1), wire::Unreached{0});
  EXPECT_TRUE(planned().empty()) << "members are not newcomers";
  say(link_of(1), wire::Unreached{2});
  EXPECT_EQ(planned(), (Ids{0, 1, 3}));
  adopt_plan(0);
  EXPECT_TRUE(planned().empty());
  say(link_of(2), wire::Ready{"w[3]"});  // it was told that it is not in the view
  EXPECT_TRUE(planned().empty());
  out_ = machine_->on_time(std::chrono::seconds(31));
  EXPECT_EQ(planned(), (Ids{0, 1, 3, 2})) << "it is tried again";
}

}  // namespace
}  // namespace pliant::membership
