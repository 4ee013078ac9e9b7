// The coordinator of a job on several hosts, some of them out of reach: whether the job is over, and how it ended.
#include "membership/coordinator_job.h"

namespace pliant::membership {
namespace {

using namespace std::chrono_literals;

constexpr Link kFirst = 2000, kSecond = 2001, kLauncher = 2002;

class CoordinatorEnd : public CoordinatorTest {
 protected:
  void hello(Link link, const std::string& host, std::uint32_t slots = 2) {
    say(link, wire::AgentHello{"job", host, slots});
  }
  /// With nobody to name.
  void agent_comes(Link link, const std::string& host, std::uint32_t slots = 2) {
    hello(link, host, slots);
    hello(link, host, slots);
  }
  static wire::Ended ended(std::uint64_t id, std::uint64_t view, Outcome outcome = Outcome::running) {
    return {id, 0, "killed by signal 9", 0, view, static_cast<std::uint8_t>(outcome)};
  }
  /// Of a job of the view 1/1, worker 0 on host a, that also had an agent on host b.
  static Memory memory_of_two_hosts() {
    Memory memory;
    memory.view = view_of(1, 1, {0});
    memory.view.members[0].host = "a";
    memory.wanted = 1;
    memory.next_id = 5;
    memory.hosts = {"a", "b"};
    return memory;
  }
  /// The agent of host a names worker 0, which has died in this view.
  void first_agent_tells_of_death(std::uint64_t view, Outcome outcome = Outcome::running) {
    hello(kFirst, "a");
    say(kFirst, wire::Started{0, 100});
    say(kFirst, ended(0, view, outcome));
    hello(kFirst, "a");
    out_ = machine_->on_time(10s);
  }
  void expect_goes_on() {
    EXPECT_FALSE(machine_->over());
    EXPECT_EQ(machine_->verdict(), Outcome::running);
  }
};

// ---- those who may have become members ----

/// The plan to take worker 1 in may have come true while there was no coordinator.
TEST_F(CoordinatorEnd, AnInvitedWorkerOfAHostWhoseAgentHasNotComeMayGoOn) {
  auto memory = memory_of_two_hosts();
  memory.invited = {{1, "b"}};
  make({.wanted = 1, .restarts = 0}, memory);
  first_agent_tells_of_death(2);
  expect_goes_on();
  hello(kSecond, "b");
  expect_goes_on();
  say(kSecond, wire::Started{1, 101});
  hello(kSecond, "b");
  out_ = machine_->on_time(20s);
  expect_goes_on();
  say(kSecond, ended(1, 2));
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
}

TEST_F(CoordinatorEnd, ThoseForWhomTheLastKnownMemberHasLeftMayGoOn) {
  auto memory = memory_of_two_hosts();
  memory.invited = {{1, "b"}};
  make({.wanted = 1, .restarts = 0}, memory);
  first_agent_tells_of_death(1, Outcome::left);
  expect_goes_on();
  hello(kSecond, "b");
  say(kSecond, wire::Started{1, 101});
  hello(kSecond, "b");
  expect_goes_on();
  say(kSecond, ended(1, 2, Outcome::finished));
  EXPECT_EQ(machine_->verdict(), Outcome::finished);
}

TEST_F(CoordinatorEnd, AnInvitedWorkerThatItsAgentDoesNotNameIsGone) {
  auto memory = memory_of_two_hosts();
  memory.invited = {{1, "b"}};
  make({.wanted = 1, .restarts = 0}, memory);
  first_agent_tells_of_death(2);
  agent_comes(kSecond, "b");
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
}

TEST_F(CoordinatorEnd, WhereAnInvitedWorkerIsASuccessorKnows) {
  make({.wanted = 1});
  agent_comes(kFirst, "a", 1);
  agent_comes(kSecond, "b", 1);
  say(kFirst, wire::Started{0, 100});
  auto from = [](std::uint64_t id, const std::string& host) {
    auto request = join_of(id);
    request.host = host;
    return request;
  };
  join(from(0, "a"));
  resize(2);
  say(kSecond, wire::Started{1, 101});
  join(from(1, "b"));
  say(link_of(1), wire::Ready{"w[3]"});
  ASSERT_EQ(planned(), (Ids{0, 1}));
  auto memory = machine_->memory();
  EXPECT_EQ(memory.invited, (std::map<std::uint64_t, std::string>{{1, "b"}}));
  EXPECT_EQ(memory.hosts, (std::set<std::string>{"a", "b"}));
  make({.wanted = 1}, memory);
  EXPECT_EQ(machine_->memory().invited, memory.invited) << "and the one after it";
  EXPECT_EQ(machine_->memory().hosts, memory.hosts);
}

/// It has no workers, and says nothing of those whose host is not known.
TEST_F(CoordinatorEnd, WhoOnlyWatchesKnowsNothingOfInvitedWorkers) {
  auto memory = memory_of_two_hosts();
  memory.invited = {{1, ""}};
  make({.wanted = 1, .restarts = 0}, memory);
  agent_comes(kLauncher, "", 0);
  EXPECT_EQ(machine_->memory().invited.size(), 1U);
  say(kLauncher, wire::AgentHello{"job", "", 0});
  EXPECT_EQ(machine_->memory().invited.size(), 1U);
}

// ---- deaths in views that nobody has reported ----

TEST_F(CoordinatorEnd, AfterADeathInAnUnknownViewTheAgentsOfAllHostsAreWaitedFor) {
  make({.wanted = 1, .restarts = 0}, memory_of_two_hosts());
  agent_comes(kLauncher, "", 0);
  first_agent_tells_of_death(2);
  expect_goes_on();
  hello(kSecond, "b");
  expect_goes_on();
  hello(kSecond, "b");  // it has nobody
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
}

TEST_F(CoordinatorEnd, AnAgentThatIsGoneAgainCannotTell) {
  make({.wanted = 1, .restarts = 0}, memory_of_two_hosts());
  agent_comes(kSecond, "b");
  out_ = machine_->on_closed(kSecond);
  first_agent_tells_of_death(2);
  expect_goes_on();
}

TEST_F(CoordinatorEnd, SomebodyOfAnotherHostMayHaveFinished) {
  make({.wanted = 1, .restarts = 0}, memory_of_two_hosts());
  first_agent_tells_of_death(2);
  hello(kSecond, "b");
  say(kSecond, wire::Started{1, 101});
  say(kSecond, ended(1, 2, Outcome::finished));
  hello(kSecond, "b");
  EXPECT_EQ(machine_->verdict(), Outcome::finished);
}

TEST_F(CoordinatorEnd, WhoeverHasFinishedSettlesItWithoutTheOtherHosts) {
  make({.wanted = 1, .restarts = 0}, memory_of_two_hosts());
  first_agent_tells_of_death(2, Outcome::finished);
  EXPECT_EQ(machine_->verdict(), Outcome::finished);
}

TEST_F(CoordinatorEnd, ADeathInTheKnownViewNeedsNobodyElsesWord) {
  make({.wanted = 1, .restarts = 0}, memory_of_two_hosts());
  first_agent_tells_of_death(1);
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
}

/// Nothing is looked for, either, while others may still train.
TEST_F(CoordinatorEnd, NoCheckpointIsNeededBeforeAllAgentsHaveCome) {
  make({.wanted = 1, .checkpoints = true}, memory_of_two_hosts());
  first_agent_tells_of_death(2);
  EXPECT_FALSE(machine_->needs_checkpoint());
  agent_comes(kSecond, "b");
  EXPECT_TRUE(machine_->needs_checkpoint());
}

// ---- a job that begins again ----

/// Workers 0 and 2 had gone on to views 2 and 3 while there was no coordinator. Worker 0 was left behind by the last.
TEST_F(CoordinatorEnd, AJobBeginsAgainInAViewThatNobodyHasHeardOf) {
  for (bool knows : {true, false}) {
    make_running({.wanted = 1, .checkpoints = true});
    say(kAgent, ended(0, knows ? 1 : 3));
    ASSERT_TRUE(machine_->needs_checkpoint());
    out_ = machine_->on_checkpoint(60);
    join(1);
    say(link_of(1), wire::Ready{"w[3]", knows ? 3U : 0U});
    EXPECT_EQ(machine_->view().restarts, 1U);
    EXPECT_EQ(machine_->view().epoch, 4U);
    EXPECT_EQ(machine_->view().planned, 4U);
  }
}

/// It had asked twice, and was taken in before the second wish came.
TEST_F(CoordinatorEnd, AWishOfBeforeItWasTakenInDoesNotMakeAMemberANewcomer) {
  make_running({.wanted = 1, .checkpoints = true});
  say(kAgent, ended(0, 1));
  out_ = machine_->on_checkpoint(60);
  join_ready(1);
  ASSERT_EQ(ids_of(machine_->view().members), (Ids{1}));
  say(link_of(1), wire::Ready{"w[3]", 1});
  out_ = machine_->on_time(10s);
  EXPECT_FALSE(machine_->needs_checkpoint());
  say(link_of(1), wire::Ready{"w[3]", 2});  // it has left that view
  EXPECT_TRUE(machine_->needs_checkpoint());
}

// ---- who is told ----

/// What some have heard, all hear, of any coordinator.
TEST_F(CoordinatorEnd, WhatWasSaidOfTheEndStands) {
  make({.wanted = 1, .checkpoints = true}, memory_of_two_hosts());
  first_agent_tells_of_death(1, Outcome::stopped);
  ASSERT_EQ(machine_->verdict(), Outcome::stopped);
  make({.wanted = 1, .checkpoints = true}, machine_->memory());
  join_ready(1);  // it would have gone on from a checkpoint
  EXPECT_FALSE(machine_->needs_checkpoint());
  EXPECT_EQ(machine_->verdict(), Outcome::stopped);
  adopt(view_of(1, 2, {1}), 1);  // but it did go on
  expect_goes_on();
}

TEST_F(CoordinatorEnd, AJobThatWillNotBeginDoesNotBeginWithASuccessorEither) {
  make_with_agent({.wanted = 2});
  for (std::uint64_t id : {0, 1}) say(kAgent, wire::Started{id, static_cast<int>(100 + id)});
  end(0, false);
  ASSERT_EQ(machine_->verdict(), Outcome::failed);
  make({.wanted = 2}, machine_->memory());
  agent_comes(kAgent, "");
  ASSERT_EQ(sent<wire::Over>(kAgent).size(), 1U);
  EXPECT_TRUE(has(sent<wire::Over>(kAgent)[0].reason, "worker 0 ended before the job began"));
  EXPECT_TRUE(started().empty());
}

TEST_F(CoordinatorEnd, AJobThatCannotBeginWithSoFewSaysSoWhenNoMoreAreWanted) {
  make_with_agent({.wanted = 1});
  say(kAgent, wire::Started{0, 100});
  resize(2);
  EXPECT_EQ(started(), (Ids{1}));
  end(0, false);
  resize(1);
  EXPECT_EQ(machine_->verdict(), Outcome::running) << "worker 1 may begin it";
  agent_comes(kAgent + 1, "");  // in the place of the first one, which had not started it
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
}

TEST_F(CoordinatorEnd, AnAgentThatComesAfterAStopIsToldToStop) {
  make({.wanted = 1}, memory_of_two_hosts());
  agent_comes(kFirst, "a");
  EXPECT_TRUE(sent<wire::Stop>(kFirst).empty());
  say(77, wire::Stop{});
  for (auto link : {kSecond, kLauncher}) {
    hello(link, link == kSecond ? "b" : "", link == kSecond ? 2 : 0);
    EXPECT_TRUE(sent<wire::Stop>(link).empty());
    hello(link, link == kSecond ? "b" : "", link == kSecond ? 2 : 0);
    EXPECT_EQ(sent<wire::Stop>(link).size(), 1U);
    hello(link, link == kSecond ? "b" : "", link == kSecond ? 2 : 0);
    EXPECT_TRUE(sent<wire::Stop>(link).empty()) << "once";
  }
  make({.wanted = 1}, machine_->memory());
  agent_comes(kFirst, "a");
  EXPECT_EQ(sent<wire::Stop>(kFirst).size(), 1U) << "by a successor too";
}

TEST_F(CoordinatorEnd, AStopKeepsItsForceHoweverLateItIsTold) {
  make({.wanted = 1}, memory_of_two_hosts());
  agent_comes(kFirst, "a");
  say(77, wire::Stop{"", 1});
  say(77, wire::Stop{});
  auto hears_force = [&](Link link, const std::string& host) {
    agent_comes(link, host);
    auto stops = sent<wire::Stop>(link);
    return stops.size() == 1 && stops[0].force == 1;
  };
  EXPECT_TRUE(hears_force(kSecond, "b"));
  make({.wanted = 1}, machine_->memory());
  EXPECT_TRUE(hears_force(kFirst, "a")) << "from a successor";
}

TEST_F(CoordinatorEnd, AHostThatIsOutOfReachHasNotHeardThatTheJobIsOver) {
  make({.wanted = 1, .restarts = 0}, memory_of_two_hosts());
  first_agent_tells_of_death(1, Outcome::finished);
  ASSERT_TRUE(machine_->over());
  EXPECT_TRUE(machine_->some_have_not_heard()) << "host b";
  hello(kSecond, "b");
  EXPECT_TRUE(machine_->some_have_not_heard()) << "it has still to name its workers";
  hello(kSecond, "b");
  EXPECT_EQ(sent<wire::Over>(kSecond).size(), 1U);
  EXPECT_FALSE(machine_->some_have_not_heard());
  out_ = machine_->on_closed(kSecond);
  EXPECT_FALSE(machine_->some_have_not_heard()) << "it has gone, but has heard it";
  hello(3000, "b");
  EXPECT_TRUE(machine_->some_have_not_heard()) << "another one has come";
}

TEST_F(CoordinatorEnd, AJobOnOneHostHasNobodyElseToTell) {
  make_running({.wanted = 1});
  out_ = machine_->on_closed(kAgent);
  EXPECT_FALSE(machine_->some_have_not_heard());
}

// ---- what a successor knows ----

/// Two finished and were not reached any more by the third, which went on alone and was killed before its own end.
TEST_F(CoordinatorEnd, WhoeverFinishedOutsideOfTheLastViewHasFinishedForASuccessorToo) {
  make_running({.wanted = 3, .checkpoints = true});
  for (std::uint64_t id : {1, 2})
    say(kAgent, wire::Ended{id, 1, "exit code 0", 0, 1, static_cast<std::uint8_t>(Outcome::finished)});
  adopt(view_of(2, 2, {0}), 0);
  for (int turn = 0; turn < 2; ++turn) {
    auto memory = machine_->memory();
    EXPECT_EQ(memory.outcomes.at(1), Outcome::finished);
    EXPECT_EQ(memory.ended.at(1), 1U);
    make({.wanted = 3, .checkpoints = true}, memory);
    CoordinatorTest::hello();
    CoordinatorTest::hello();  // which names nobody: an earlier coordinator has heard of all
  }
  say(kAgent, ended(0, 2));
  out_ = machine_->on_time(10s);
  EXPECT_EQ(machine_->verdict(), Outcome::finished);
  EXPECT_FALSE(machine_->needs_checkpoint());
}

TEST_F(CoordinatorEnd, WhatWasSaidOfTheEndIsSaidByWhoeverDoesNotKnowAllTheDead) {
  auto memory = memory_of_two_hosts();
  memory.said = wire::Over{static_cast<std::uint8_t>(Outcome::finished)};
  make({.wanted = 1}, memory);
  agent_comes(kLauncher, "", 0);
  ASSERT_EQ(sent<wire::Over>(kLauncher).size(), 1U);
  EXPECT_EQ(machine_->verdict(), Outcome::finished);
  auto member = join_of(1);
  member.view = notice_of(view_of(2, 2, {1}));
  join(member);
  EXPECT_EQ(machine_->verdict(), Outcome::running) << "a view that nobody had heard of takes it back";
}

/// It is stopped, and has been since the program's first loop; the others went on to the second.
TEST_F(CoordinatorEnd, TheEndOfAnEarlierLoopIsNoEndOfTheJob) {
  make_running({.wanted = 2});
  say(link_of(1), wire::LoopEnded{static_cast<std::uint8_t>(Outcome::finished)});
  adopt(view_of(2, 2, {0}), 0);
  wire::Progress progress;
  progress.step = 7;
  progress.view = 2;
  say(link_of(0), progress);
  say(kAgent, ended(0, 2));
  out_ = machine_->on_time(10s);
  EXPECT_NE(machine_->verdict(), Outcome::finished);
}

/// Their host's agent, which came after they were killed with the one before, has nobody to name.
TEST_F(CoordinatorEnd, InvitedWorkersThatAreGoneAreReplacedByASuccessor) {
  auto memory = memory_of_two_hosts();
  memory.wanted = 2;
  memory.restarts = 10;
  memory.invited = {{1, "b"}, {2, "b"}, {3, "b"}};
  make({.wanted = 2, .checkpoints = true}, memory);
  first_agent_tells_of_death(1);
  agent_comes(kSecond, "b");
  if (machine_->needs_checkpoint()) out_ = machine_->on_checkpoint(60);
  out_ = machine_->on_time(20s);
  EXPECT_EQ(machine_->memory().next_id, 7U) << "two are asked for\n" << machine_->describe();
}

// ---- whoever was left behind in a view that is lost ----

TEST_F(CoordinatorEnd, AMemberThatIsInNoViewAnyMoreBeginsAgain) {
  make_running({.wanted = 2, .checkpoints = true});
  auto grown = view_of(1, 2, {0, 1});
  grown.newcomers = {1};
  adopt(grown, 0);
  resize(1);
  out_ = machine_->on_gone(0);
  end(0, false);
  say(link_of(1), wire::Ready{"w[3]", 2});  // it had no state, and nobody is left who could have given it any
  out_ = machine_->on_time(10s);
  ASSERT_TRUE(machine_->needs_checkpoint()) << machine_->describe();
  out_ = machine_->on_checkpoint(60);
  EXPECT_EQ(machine_->view().epoch, 3U);
  EXPECT_EQ(ids_of(machine_->view().members), (Ids{1}));
  EXPECT_EQ(sent_to_worker<wire::ViewNotice>(1).size(), 1U);
  out_ = machine_->on_time(20s);
  EXPECT_FALSE(machine_->needs_checkpoint()) << "it has begun";
}

TEST_F(CoordinatorEnd, AMemberThatDoesNotKnowThatItsViewIsLostIsNotWaitedFor) {
  make_running({.wanted = 2, .checkpoints = true});
  auto grown = view_of(1, 2, {0, 1});
  grown.newcomers = {1};
  adopt(grown, 0);
  adopt(grown, 1);
  resize(1);
  say(kAgent, ended(0, 3));  // in a view without worker 1
  out_ = machine_->on_time(10s);
  say(link_of(1), wire::Promise{0, notice_of(grown)});  // it knows of no other
  out_ = machine_->on_time(20s);
  ASSERT_TRUE(machine_->needs_checkpoint()) << machine_->describe();
  out_ = machine_->on_checkpoint(60);
  EXPECT_EQ(started(), (Ids{2})) << machine_->describe();
}

}  // namespace
}  // namespace pliant::membership
