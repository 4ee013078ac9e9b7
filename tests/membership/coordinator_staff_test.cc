// The coordinator and processes: how many there shall be, who is started, who has ended, and the agent.
#include "membership/coordinator_job.h"

namespace pliant::membership {
namespace {

// ---- resizing ----

TEST_F(CoordinatorTest, ResizeIsAnsweredOrRefused) {
  make_running({.wanted = 3, .least = 2, .most = 5});
  EXPECT_TRUE(has(resize(0).text, "at least one"));
  EXPECT_TRUE(has(resize(1).text, "--min"));
  EXPECT_TRUE(has(resize(6).text, "--max"));
  EXPECT_EQ(resize(6).ok, 0);
  EXPECT_TRUE(out_.size() == 1) << "and nothing happens";
  EXPECT_EQ(machine_->memory().wanted, 3U);
  auto answer = resize(5);
  EXPECT_EQ(answer.ok, 1);
  EXPECT_EQ(answer.text, "job 'job' will have 5 workers; it has 3 now");
  EXPECT_EQ(started(), (Ids{3, 4}));
  EXPECT_EQ(machine_->memory().wanted, 5U);
}

TEST_F(CoordinatorTest, WithoutAnAgentTheAnswerSaysSo) {
  make_running({.wanted = 2});
  out_ = machine_->on_closed(kAgent);
  EXPECT_TRUE(has(resize(3).text, "--attach job"));
  EXPECT_TRUE(started().empty());
}

// ---- starting and ending ----

TEST_F(CoordinatorTest, AsksForAllAtTheBeginning) {
  make({.wanted = 3});
  hello();
  EXPECT_TRUE(started().empty()) << "it may have some already";
  say(kAgent, wire::AgentHello{"job"});
  EXPECT_EQ(started(), (Ids{0, 1, 2}));
  say(kAgent, wire::Started{0, 100});
  EXPECT_TRUE(started().empty());
}

TEST_F(CoordinatorTest, AnAgentOfAnotherJobIsRefused) {
  make({.wanted = 1});
  say(kAgent, wire::AgentHello{"other"});
  EXPECT_EQ(sent<wire::Refusal>(kAgent).size(), 1U);
}

TEST_F(CoordinatorTest, AMemberThatFailsIsReplacedOnceTheOthersHaveSettledIt) {
  make_running({.wanted = 3, .restarts = 1});
  out_ = machine_->on_gone(1);
  EXPECT_TRUE(started().empty());
  end(1, false);
  EXPECT_TRUE(started().empty()) << "it is still in the view";
  adopt(view_of(2, 2, {0, 2}), 0);
  EXPECT_EQ(started(), (Ids{3}));
  EXPECT_EQ(machine_->memory().restarts, 0);
  join(1);
  EXPECT_TRUE(has(refusal(1), "has ended"));
}

TEST_F(CoordinatorTest, WithoutRestartsLeftTheJobGoesOnWithThoseWhoAreLeft) {
  make_running({.wanted = 3, .restarts = 0});
  end(1, false);
  adopt(view_of(2, 2, {0, 2}), 0);
  EXPECT_TRUE(started().empty());
  EXPECT_EQ(machine_->memory().wanted, 3U);
  (void)resize(3);
  EXPECT_EQ(started(), (Ids{3})) << "whoever asks for three means it";
}

TEST_F(CoordinatorTest, AReplacementThatDiesBeforeItJoinsCostsARestart) {
  make_running({.wanted = 2, .restarts = 2});
  end(1, false);
  adopt(view_of(2, 2, {0}), 0);
  EXPECT_EQ(started(), (Ids{2}));
  end(2, true);  // whatever its status says
  EXPECT_EQ(started(), (Ids{3}));
  end(3, false);
  EXPECT_TRUE(started().empty());
}

TEST_F(CoordinatorTest, TheAgentIsToldWhoSaidGoodbye) {
  make_running({.wanted = 3});
  say(link_of(1), wire::Bye{});
  for (std::uint64_t id : {1, 2}) {
    end(id, false);
    ASSERT_EQ(sent<wire::Parted>(kAgent).size(), 1U);
    EXPECT_EQ(sent<wire::Parted>(kAgent)[0].id, id);
    EXPECT_EQ(sent<wire::Parted>(kAgent)[0].goodbye, id == 1 ? 1 : 0);
  }
}

TEST_F(CoordinatorTest, ASpareTakesThePlaceOfTheDead) {
  make_running({.wanted = 3, .restarts = 0});
  (void)resize(2);
  adopt_plan(0);
  say(link_of(2), wire::Ready{"w[3]"});
  end(1, false);
  auto after = view_of(2, 3, {0});
  adopt(after, 0);
  say(link_of(0), wire::Promise{3, notice_of(after)});
  EXPECT_EQ(planned(), (Ids{0, 2}));
}

TEST_F(CoordinatorTest, WhoLeavesWithNoticeIsNotReplaced) {
  make_running({.wanted = 3, .least = 2});
  say(link_of(2), wire::Bye{});
  end(2, true);
  EXPECT_EQ(machine_->memory().wanted, 3U) << "the job might be finished";
  adopt(view_of(1, 2, {0, 1}), 0);
  EXPECT_EQ(machine_->memory().wanted, 2U);
  EXPECT_TRUE(started().empty());
  EXPECT_TRUE(planned().empty());
  adopt(view_of(1, 3, {0}), 0);
  end(1, true);
  EXPECT_EQ(machine_->memory().wanted, 2U) << "not below the least";
  EXPECT_EQ(started(), (Ids{3}));
}

TEST_F(CoordinatorTest, WithoutAnAgentAGoodbyeTellsLeavingFromDying) {
  make_running({.wanted = 3});
  out_ = machine_->on_closed(kAgent);
  say(link_of(2), wire::Bye{});
  out_ = machine_->on_gone(2);
  adopt(view_of(1, 2, {0, 1}), 0);
  EXPECT_EQ(machine_->memory().wanted, 2U);
  out_ = machine_->on_gone(1);
  EXPECT_EQ(machine_->memory().restarts, 9);
}

TEST_F(CoordinatorTest, TheJobIsOverWhenAllMembersAreDone) {
  make_running({.wanted = 2});
  (void)resize(3);
  join_ready(2);
  say(link_of(0), wire::Bye{});
  EXPECT_FALSE(machine_->over()) << "it may only have left";
  say(link_of(1), wire::Bye{});
  EXPECT_TRUE(machine_->over());
  EXPECT_EQ(workers_sent<wire::Over>(), (Ids{2}));
  EXPECT_EQ(sent<wire::Over>(kAgent).size(), 1U);
  end(0, true);
  end(1, true);
  EXPECT_TRUE(started().empty());
  EXPECT_TRUE(has(resize(2).text, "is over"));
  join(3);
  EXPECT_EQ(sent_to_worker<wire::ViewNotice>(3).size(), 1U) << "whoever waits for its first view gets it";
  EXPECT_EQ(sent_to_worker<wire::Over>(3).size(), 1U);
}

TEST_F(CoordinatorTest, AJobThatLostAllItsMembersIsOverButNotWell) {
  make_running({.wanted = 2});
  (void)resize(3);
  join_ready(2);
  end(0, false);
  end(1, false);
  EXPECT_EQ(workers_sent<wire::Over>(), (Ids{2}));
  EXPECT_TRUE(sent<wire::Over>(kAgent).empty());
  EXPECT_TRUE(started().empty());
  adopt(view_of(3, 3, {2}), 2);  // it had been taken in, and is alone now
  EXPECT_FALSE(machine_->over());
}

// ---- agents come and go ----

TEST_F(CoordinatorTest, ASuccessorAsksOnlyForWhatIsMissing) {
  make({.wanted = 2}, Memory{view_of(1, 3, {0, 1}), 4, 0, 5, 10});
  hello();
  say(kAgent, wire::Started{0, 100});
  say(kAgent, wire::Started{1, 101});
  say(kAgent, wire::Started{4, 104});
  EXPECT_TRUE(started().empty());
  hello();
  EXPECT_EQ(started(), (Ids{5})) << "ids are never used twice";
}

TEST_F(CoordinatorTest, WhatAnAgentDidNotDoIsAskedOfTheNext) {
  make_with_agent({.wanted = 2});
  say(kAgent, wire::Started{0, 100});
  out_ = machine_->on_closed(kAgent);
  hello();
  say(kAgent, wire::Started{0, 100});
  hello();
  EXPECT_EQ(started(), (Ids{2})) << "worker 1 never was";
}

TEST_F(CoordinatorTest, OfWhomAnAgentDoesNotKnowItSaysNothing) {
  make_running({.wanted = 3});
  out_ = machine_->on_closed(kAgent);
  hello();
  say(kAgent, wire::Started{0, 100});
  say(kAgent, wire::Started{1, 101});
  hello();
  out_ = machine_->on_gone(2);
  adopt(view_of(2, 2, {0, 1}), 0);
  EXPECT_EQ(started(), (Ids{3}));
}

TEST_F(CoordinatorTest, TheAgentHearsOfEveryChangeOnce) {
  make_with_agent({.wanted = 2});
  EXPECT_EQ(state().view.epoch, 0U);
  say(kAgent, wire::Started{0, 100});
  say(kAgent, wire::Started{1, 101});
  EXPECT_TRUE(sent<wire::JobState>(kAgent).empty());
  join(0);
  EXPECT_EQ(state().spare, 1U) << "it waits for the others";
  join(1);
  EXPECT_EQ(state().view.epoch, 1U);
  say(link_of(0), wire::Progress{});
  EXPECT_TRUE(sent<wire::JobState>(kAgent).empty());
}

TEST_F(CoordinatorTest, ProgressOfTheFirstMemberIsPassedOn) {
  make_running({.wanted = 2});
  wire::Progress progress;
  progress.step = 7;
  say(link_of(1), progress);
  EXPECT_TRUE(sent<wire::Progress>(kAgent).empty());
  say(link_of(0), progress);
  EXPECT_EQ(sent<wire::Progress>(kAgent).at(0).step, 7U);
  out_ = machine_->on_closed(link_of(0));
  say(link_of(1), progress);
  EXPECT_EQ(sent<wire::Progress>(kAgent).size(), 1U);
}

TEST_F(CoordinatorTest, ComplaintsArePassedOnWithTheirAuthor) {
  make_running({.wanted = 2});
  say(link_of(1), wire::Complaint{0, "lost it"});
  auto seen = sent<wire::Complaint>(kAgent).at(0);
  EXPECT_EQ(seen.id, 0U);
  EXPECT_EQ(seen.reason, "worker 1 said: lost it");
}

TEST_F(CoordinatorTest, MemoryIsEnoughToGoOn) {
  make_running({.wanted = 2, .restarts = 3});
  end(1, false);
  adopt(view_of(2, 2, {0}), 0);
  auto memory = machine_->memory();
  EXPECT_EQ(memory.view.epoch, 2U);
  EXPECT_EQ(memory.next_id, 3U);
  EXPECT_EQ(memory.restarts, 2);
  make({.wanted = 2, .restarts = 3}, memory);
  EXPECT_TRUE(machine_->memory() == memory);
}

}  // namespace
}  // namespace pliant::membership
