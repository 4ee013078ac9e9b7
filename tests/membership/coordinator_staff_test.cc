// The coordinator and processes: how many there shall be, who is started, who has ended, and the agent.
#include "membership/coordinator_job.h"

namespace pliant::membership {
namespace {

using namespace std::chrono_literals;

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
  hello();
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

TEST_F(CoordinatorTest, WhoFinishedAnEarlierLoopAndEndedHasNotFinishedTheJob) {
  make_running({.wanted = 3, .restarts = 0});
  for (std::uint64_t id : {0, 1, 2}) say(link_of(id), wire::LoopEnded{static_cast<std::uint8_t>(Outcome::finished), 5});
  say(kAgent, wire::Ended{2, 0, "killed by signal 9", 0, 1, static_cast<std::uint8_t>(Outcome::finished)});
  for (std::uint64_t id : {0, 1}) say(link_of(id), wire::LoopEnded{static_cast<std::uint8_t>(Outcome::running), 5});
  adopt(view_of(2, 2, {0, 1}), 0);
  say(link_of(0), wire::Progress{.step = 6, .view = 2});
  for (std::uint64_t id : {0, 1}) {
    say(link_of(id), wire::LoopEnded{static_cast<std::uint8_t>(Outcome::stopped), 6});
    say(link_of(id), wire::Bye{static_cast<std::uint8_t>(Outcome::stopped), 6});
  }
  EXPECT_EQ(machine_->verdict(), Outcome::stopped);
}

/// A coordinator was being replaced when it began the next loop: what it left in writing says so.
TEST_F(CoordinatorTest, WhatAWorkerLeftInWritingIsNewerThanItsMessages) {
  make_running({.wanted = 1, .restarts = 0});
  say(link_of(0), wire::LoopEnded{static_cast<std::uint8_t>(Outcome::finished), 5});
  say(kAgent, wire::Ended{0, 0, "killed by signal 9", 0, 1, static_cast<std::uint8_t>(Outcome::running)});
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
}

/// Nobody has told this coordinator of the job's last view.
TEST_F(CoordinatorTest, HowTheLastViewEndedIsKnownFromThoseWhoEndedInIt) {
  make_running({.wanted = 1, .restarts = 0});
  say(kAgent, wire::Started{1, 101});
  say(kAgent, wire::Ended{1, 1, "exit code 0", 0, 3, static_cast<std::uint8_t>(Outcome::stopped)});
  auto memory = machine_->memory();
  EXPECT_EQ(memory.ended.at(1), 3U);
  say(kAgent, wire::Ended{0, 0, "killed by signal 9", 0, 2, static_cast<std::uint8_t>(Outcome::finished)});
  EXPECT_EQ(machine_->verdict(), Outcome::stopped);
  make({.wanted = 1, .restarts = 0}, machine_->memory());
  EXPECT_EQ(machine_->verdict(), Outcome::stopped) << "of a successor too";
}

/// An agent that hears of a newer view after the end takes the end back.
TEST_F(CoordinatorTest, TheNewestViewIsToldBeforeTheEnd) {
  make_running({.wanted = 2});
  say(link_of(1), wire::Bye{static_cast<std::uint8_t>(Outcome::finished), 5});
  say(link_of(0), wire::Bye{static_cast<std::uint8_t>(Outcome::finished), 5});
  ASSERT_EQ(sent<wire::Over>(kAgent).size(), 1U);
  adopt(view_of(2, 2, {1}), 1);  // it was on its way
  ASSERT_EQ(sent<wire::Over>(kAgent).size(), 1U) << "said again";
  std::vector<std::size_t> kinds;
  for (const auto& letter : out_)
    if (letter.to == kAgent) kinds.push_back(letter.message.index());
  EXPECT_EQ(kinds.front(), wire::Message(wire::JobState{}).index());
}

/// A newcomer that was taken in and lost at once is known to be neither from the view that follows.
TEST_F(CoordinatorTest, WhoMayHaveBeenTakenInAndLostMustAskAgain) {
  make_running({.wanted = 2});
  EXPECT_TRUE(resize(3).ok);
  say(kAgent, wire::Started{2, 102});
  join_ready(2);
  ASSERT_EQ(planned(), (Ids{0, 1, 2}));
  auto after = view_of(2, 3, {0, 1});
  after.planned = 2;  // the plan came true, and a view followed it
  adopt(after, 0);
  EXPECT_EQ(sent_to_worker<wire::ViewNotice>(2).size(), 1U);
  for (std::uint64_t id : {0, 1}) say(link_of(id), wire::Promise{3, notice_of(after)});
  EXPECT_TRUE(planned().empty());
  say(link_of(2), wire::Ready{"w[3]"});
  EXPECT_EQ(planned(), (Ids{0, 1, 2}));
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
  out_ = machine_->on_time(std::chrono::seconds(2));
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
  EXPECT_TRUE(workers_sent<wire::Over>().empty()) << "it may have been taken in";
  out_ = machine_->on_time(std::chrono::seconds(2));
  EXPECT_EQ(workers_sent<wire::Over>(), (Ids{2}));
  ASSERT_EQ(sent<wire::Over>(kAgent).size(), 1U);
  EXPECT_EQ(wire::outcome_in(sent<wire::Over>(kAgent)[0].outcome), Outcome::failed);
  EXPECT_TRUE(started().empty());
  adopt(view_of(3, 3, {2}), 2);  // it had been taken in, and is alone now
  EXPECT_FALSE(machine_->over());
}

// ---- how a job ended ----

wire::Bye bye(Outcome outcome) { return {static_cast<std::uint8_t>(outcome), 5}; }

TEST_F(CoordinatorTest, AJobIsFinishedOnlyIfAMemberSaysSo) {
  struct Case {
    std::vector<Outcome> said;  // by the members; running: nothing
    Outcome verdict;
  };
  using enum Outcome;
  for (const auto& each : std::vector<Case>{{{finished, finished}, finished},
                                            {{finished, running}, finished},
                                            {{left, finished}, finished},
                                            {{stopped, stopped}, stopped},
                                            {{stopped, running}, stopped},
                                            {{left, running}, failed},
                                            {{failed, running}, failed},
                                            {{failed, left}, failed},
                                            {{running, running}, failed}}) {
    make_running({.wanted = 2});
    out_ = machine_->on_closed(kAgent);
    for (std::uint64_t id : {0, 1})
      if (each.said[id] != running) say(link_of(id), bye(each.said[id]));
    for (std::uint64_t id : {0, 1}) {
      out_ = machine_->on_gone(id);
      EXPECT_EQ(machine_->over(), id == 1 || (each.said[1] != running));
    }
    EXPECT_EQ(machine_->verdict(), each.verdict) << name_of(each.said[0]) << ", " << name_of(each.said[1]);
  }
}

TEST_F(CoordinatorTest, ExitStatusZeroInMidLoopIsAFailure) {
  make_running({.wanted = 1});
  end(0, true);
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
  ASSERT_EQ(sent<wire::Over>(kAgent).size(), 1U);
  EXPECT_TRUE(has(sent<wire::Over>(kAgent)[0].reason, "worker 0: exit code 0"));
  EXPECT_EQ(sent<wire::Parted>(kAgent).at(0).goodbye, 0);
}

TEST_F(CoordinatorTest, ExitStatusZeroInMidLoopCostsARestartAndIsReplaced) {
  make_running({.wanted = 2});
  end(1, true);
  adopt(view_of(2, 2, {0}), 0);
  EXPECT_EQ(machine_->memory().restarts, 9);
  EXPECT_EQ(started(), (Ids{2}));
}

TEST_F(CoordinatorTest, ALoopThatEndedIsRemembered) {
  make_running({.wanted = 2});
  say(link_of(1), wire::LoopEnded{static_cast<std::uint8_t>(Outcome::finished), 5});
  auto memory = machine_->memory();
  make({.wanted = 2}, memory);  // the next coordinator, which nobody says anything to
  for (std::uint64_t id : {0, 1}) out_ = machine_->on_gone(id);
  EXPECT_EQ(machine_->verdict(), Outcome::finished);
}

TEST_F(CoordinatorTest, HowALoopEndedMayComeWithTheWordOfTheProcess) {
  make_running({.wanted = 1});
  out_ = machine_->on_gone(0);
  EXPECT_FALSE(machine_->over()) << "its agent will say how it ended";
  say(kAgent, wire::Ended{0, 1, "exit code 0", 0, 1, static_cast<std::uint8_t>(Outcome::finished)});
  EXPECT_EQ(machine_->verdict(), Outcome::finished);
}

TEST_F(CoordinatorTest, WithoutItsAgentTheEndOfAProcessIsAllThatIsKnown) {
  make_running({.wanted = 1});
  out_ = machine_->on_gone(0);
  out_ = machine_->on_closed(kAgent);
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
}

TEST_F(CoordinatorTest, AnotherLoopTakesBackWhatWasSaidOfTheFirst) {
  make_running({.wanted = 1});
  say(link_of(0), wire::LoopEnded{static_cast<std::uint8_t>(Outcome::finished), 5});
  say(link_of(0), wire::LoopEnded{static_cast<std::uint8_t>(Outcome::running), 5});
  end(0, false);
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
}

TEST_F(CoordinatorTest, WhoeverDiesAfterAStopWasAskedForDoesNotFail) {
  make_running({.wanted = 2});
  say(77, wire::Stop{});
  auto memory = machine_->memory();
  make({.wanted = 2}, memory);
  for (std::uint64_t id : {0, 1}) out_ = machine_->on_gone(id);
  EXPECT_EQ(machine_->verdict(), Outcome::stopped);
  EXPECT_TRUE(started().empty());
}

TEST_F(CoordinatorTest, AStopOfOneHostIsNoStopOfTheJob) {
  make_running({.wanted = 1});
  say(77, wire::Stop{"b", 0});
  end(0, false);
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
}

// ---- a job that has lost its state ----

TEST_F(CoordinatorTest, AJobThatBeginsAgainHasNoNewcomersOfTheViewBefore) {
  make_running({.wanted = 2, .checkpoints = true});
  auto grown = view_of(1, 2, {0, 1});
  grown.newcomers = {1};
  adopt(grown, 0);
  for (std::uint64_t id : {0, 1}) {
    out_ = machine_->on_gone(id);
    end(id, false);
  }
  ASSERT_TRUE(machine_->needs_checkpoint());
  out_ = machine_->on_checkpoint(60);
  say(kAgent, wire::Started{2, 102});
  join_ready(2);
  EXPECT_EQ(ids_of(machine_->view().members), (Ids{2}));
  EXPECT_TRUE(machine_->view().newcomers.empty()) << "nobody could give it any state";
}

TEST_F(CoordinatorTest, AJobThatHasLostItsStateBeginsAgainFromItsCheckpoint) {
  make_running({.wanted = 1, .spare = 2, .checkpoints = true});
  for (std::uint64_t id : {1, 2}) {
    say(kAgent, wire::Started{id, static_cast<int>(100 + id)});
    join_ready(id);
  }
  end(0, false);
  EXPECT_FALSE(machine_->over());
  ASSERT_TRUE(machine_->needs_checkpoint());
  EXPECT_TRUE(workers_sent<wire::Over>().empty());
  out_ = machine_->on_checkpoint(60);
  auto view = machine_->view();
  EXPECT_EQ(ids_of(view.members), (Ids{1}));
  EXPECT_EQ(view.restarts, 1U);
  EXPECT_EQ(view.resume_step, 60U);
  EXPECT_EQ(view.epoch, 2U);
  ASSERT_EQ(sent_to_worker<wire::ViewNotice>(1).size(), 1U);
  EXPECT_EQ(sent_to_worker<wire::ViewNotice>(1)[0].restarts, 1U);
  EXPECT_FALSE(machine_->over());
  end(1, false);  // and once more
  ASSERT_TRUE(machine_->needs_checkpoint());
  out_ = machine_->on_checkpoint(60);
  EXPECT_EQ(machine_->view().restarts, 2U);
}

TEST_F(CoordinatorTest, WithNobodyWaitingOthersAreStartedForThat) {
  make_running({.wanted = 2, .checkpoints = true});
  end(0, false);
  end(1, false);
  EXPECT_TRUE(started().empty()) << "is there a checkpoint?";
  out_ = machine_->on_checkpoint(60);
  EXPECT_EQ(started(), (Ids{2, 3}));
  EXPECT_EQ(machine_->view().restarts, 0U);
  auto memory = machine_->memory();
  join_ready(3);
  EXPECT_EQ(ids_of(machine_->view().members), (Ids{3})) << "it does not wait for the other one";
  join_ready(2);
  EXPECT_EQ(planned(), (Ids{3, 2}));

  make({.wanted = 2, .checkpoints = true}, memory);  // the next coordinator finds out by itself
  for (std::uint64_t id : {0, 1}) out_ = machine_->on_gone(id);
  EXPECT_TRUE(machine_->needs_checkpoint());
}

TEST_F(CoordinatorTest, WithoutACheckpointAJobThatHasLostItsStateFailsAndSaysWhy) {
  for (bool checkpoints : {false, true}) {
    make_running({.wanted = 1, .checkpoints = checkpoints});
    end(0, false);
    EXPECT_EQ(machine_->needs_checkpoint(), checkpoints);
    if (checkpoints) out_ = machine_->on_checkpoint({}, "there is none");
    EXPECT_EQ(machine_->verdict(), Outcome::failed);
    ASSERT_EQ(sent<wire::Over>(kAgent).size(), 1U);
    auto reason = sent<wire::Over>(kAgent)[0].reason;
    EXPECT_TRUE(has(reason, "no worker is left that holds the state of the training (worker 0: killed by signal 9)"));
    EXPECT_TRUE(has(reason, checkpoints ? "there is none" : "--checkpoint")) << reason;
  }
}

TEST_F(CoordinatorTest, WhoeverIsOnlyOutOfReachIsWaitedFor) {
  make_running({.wanted = 2, .checkpoints = true});
  end(0, false);
  out_ = machine_->on_closed(link_of(1));
  EXPECT_FALSE(machine_->needs_checkpoint());
  EXPECT_FALSE(machine_->over());
}

/// Worker 0 has died in a view that nobody has reported.
wire::Ended ended_in(std::uint64_t view) { return {0, 0, "killed by signal 9", 0, view, 0}; }

TEST_F(CoordinatorTest, WhoeverMayHaveBeenLeftBehindIsAskedBeforeTheJobIsOver) {
  make_running({.wanted = 2});
  out_ = machine_->on_time(Nanos(0));
  say(kAgent, ended_in(2));
  out_ = machine_->on_time(10s);
  EXPECT_FALSE(machine_->over());
  ASSERT_EQ(sent_to_worker<wire::Claim>(1).size(), 1U);
  out_ = machine_->on_time(20s);
  EXPECT_FALSE(machine_->over());  // it may be stopped
  EXPECT_TRUE(sent_to_worker<wire::Claim>(1).empty());
  say(link_of(1), wire::Decline{1, notice_of(view_of(1, 1, {0, 1}))});
  EXPECT_TRUE(machine_->over());
}

TEST_F(CoordinatorTest, WhoeverIsAskedMayKnowTheViewThatTheDeadWasIn) {
  make_running({.wanted = 2});
  out_ = machine_->on_time(Nanos(0));
  say(kAgent, ended_in(2));
  out_ = machine_->on_time(10s);
  say(link_of(1), wire::Decline{1, notice_of(view_of(2, 2, {0, 1}))});
  EXPECT_FALSE(machine_->over());
  EXPECT_EQ(machine_->view().epoch, 2U);
}

TEST_F(CoordinatorTest, ASuccessorWaitsForWhoeverMayHaveBeenTakenIn) {
  make_running({.wanted = 1});
  resize(2);
  say(kAgent, wire::Started{1, 101});
  join_ready(1);
  EXPECT_EQ(planned(), (Ids{0, 1}));
  auto memory = machine_->memory();
  EXPECT_EQ(memory.invited, (std::map<std::uint64_t, std::string>{{1, ""}}));
  make({.wanted = 1}, memory);
  hello();
  say(kAgent, wire::Started{0, 100});
  say(kAgent, ended_in(3));  // in which worker 1 may be as well
  out_ = machine_->on_time(10s);
  EXPECT_FALSE(machine_->over());
  say(kAgent, wire::Ended{1, 1, "exit code 0", 0, 3, static_cast<std::uint8_t>(Outcome::finished)});
  hello();
  EXPECT_EQ(machine_->verdict(), Outcome::finished);
  EXPECT_TRUE(machine_->memory().invited.empty());
}

TEST_F(CoordinatorTest, AJobThatFinishedOrWasStoppedDoesNotBeginAgain) {
  for (bool stop : {false, true}) {
    make_running({.wanted = 1, .checkpoints = true});
    if (stop)
      say(77, wire::Stop{});
    else
      say(link_of(0), bye(Outcome::finished));
    end(0, !stop);
    EXPECT_FALSE(machine_->needs_checkpoint());
    EXPECT_EQ(machine_->verdict(), stop ? Outcome::stopped : Outcome::finished);
  }
}

TEST_F(CoordinatorTest, AJobThatFailsAgainAndAgainIsNotBegunForEver) {
  make_running({.wanted = 1, .restarts = 0, .checkpoints = true});
  end(0, false);
  ASSERT_TRUE(machine_->needs_checkpoint());
  out_ = machine_->on_checkpoint(60);
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
  EXPECT_TRUE(has(sent<wire::Over>(kAgent).at(0).reason, "--max-restarts"));
}

TEST_F(CoordinatorTest, ThoseWhoWaitGoOnAfterTheOnlyMemberWasToldToLeave) {
  make_running({.wanted = 1, .spare = 1, .checkpoints = true});
  say(kAgent, wire::Started{1, 101});
  join_ready(1);
  say(link_of(0), bye(Outcome::stopped));
  EXPECT_TRUE(workers_sent<wire::Over>().empty());
  ASSERT_TRUE(machine_->needs_checkpoint());
  out_ = machine_->on_checkpoint(60);
  EXPECT_EQ(ids_of(machine_->view().members), (Ids{1}));
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

// ---- several hosts ----

class HostsTest : public CoordinatorTest {
 protected:
  static constexpr Link kFirst = 2000, kSecond = 2001;

  /// An agent without workers, as all are at a job's start.
  void agent(Link link, const std::string& host, std::uint32_t slots) {
    say(link, wire::AgentHello{"job", host, slots});
    say(link, wire::AgentHello{"job", host, slots});
  }
  Ids started_at(Link link) const {
    Ids ids;
    for (const auto& start : sent<wire::Start>(link)) ids.push_back(start.id);
    return ids;
  }
  /// Each member on the host that its place in `hosts` names.
  static View on_hosts(View view, const std::string& hosts) {
    for (std::size_t i = 0; i < hosts.size(); ++i) view.members[i].host = hosts[i];
    return view;
  }
  void join_from(std::uint64_t id, const std::string& host) {
    auto request = join_of(id);
    request.host = host;
    join(request);
  }
  /// Workers 0 and 1 on host a, 2 on host b.
  void make_running_on_two() {
    make({.wanted = 3});
    agent(kFirst, "a", 2);
    agent(kSecond, "b", 2);
    for (std::uint64_t id : {0, 1}) say(kFirst, wire::Started{id, static_cast<int>(100 + id)});
    say(kSecond, wire::Started{2, 102});
    for (std::uint64_t id : {0, 1}) join_from(id, "a");
    join_from(2, "b");
    ASSERT_TRUE(machine_->formed());
  }
};

TEST_F(HostsTest, SlotsAreFilledInTheOrderOfAgents) {
  make({.wanted = 3});
  agent(kFirst, "z", 2);
  EXPECT_EQ(started_at(kFirst), (Ids{0, 1}));
  agent(kSecond, "a", 2);
  EXPECT_EQ(started_at(kSecond), (Ids{2}));
  resize(4);
  EXPECT_EQ(started_at(kSecond), (Ids{3}));
  resize(5);  // nobody has room
  EXPECT_TRUE(started_at(kFirst).empty() && started_at(kSecond).empty());
}

TEST_F(HostsTest, AReplacementGoesWhereThereIsRoom) {
  make_running_on_two();
  say(kFirst, wire::Ended{0, 0, "killed by signal 9"});
  auto after = view_of(2, 2, {1, 2});
  after.members[0].host = "a", after.members[1].host = "b";
  adopt(after, 1);
  EXPECT_EQ(started_at(kFirst), (Ids{3}));
}

TEST_F(HostsTest, ADeathIsToldToMembersOnOtherHosts) {
  make_running_on_two();
  say(kFirst, wire::Ended{0, 0, "killed by signal 9"});
  EXPECT_EQ(workers_sent<wire::Dead>(), (Ids{2}));
  EXPECT_EQ(sent_to_worker<wire::Dead>(2).at(0).id, 0U);
  say(kFirst, wire::Ended{0, 0, "again"});
  EXPECT_TRUE(workers_sent<wire::Dead>().empty());
}

TEST_F(HostsTest, WhoWaitsOutsideHearsOfDeathsToo) {
  make_running_on_two();
  join_from(3, "b");
  join_from(4, "a");
  say(kFirst, wire::Ended{0, 0, "killed by signal 9"});
  EXPECT_EQ(workers_sent<wire::Dead>(), (Ids{2, 3})) << "4 is a neighbour, and sees it";
  say(kFirst, wire::Ended{4, 0, "killed by signal 9"});
  EXPECT_EQ(workers_sent<wire::Dead>(), (Ids{2, 3})) << "a plan may have named it";
}

TEST_F(HostsTest, WithADeathAMemberHearsOfTheViewThatOnlyTheDeadHadReported) {
  make_running_on_two();
  adopt(on_hosts(view_of(1, 2, {0, 1, 2}), "aab"), 0);
  say(kFirst, wire::Ended{0, 0, "killed by signal 9", 0, 2});
  ASSERT_EQ(sent_to_worker<wire::ViewNotice>(2).size(), 1U);
  EXPECT_EQ(sent_to_worker<wire::ViewNotice>(2)[0].epoch, 2U);
  adopt(on_hosts(view_of(1, 2, {0, 1, 2}), "aab"), 2);
  say(kFirst, wire::Ended{1, 0, "killed by signal 9", 0, 2});
  EXPECT_TRUE(sent_to_worker<wire::ViewNotice>(2).empty()) << "it knows";
}

TEST_F(HostsTest, WhoConnectsAgainHearsOfDeathsOutsideOfTheView) {
  make_running_on_two();
  adopt(on_hosts(view_of(2, 2, {1, 2}), "ab"), 1);
  machine_->on_closed(link_of(2));
  say(kFirst, wire::Ended{0, 0, "killed by signal 9", 0, 1});
  join_from(2, "b");
  EXPECT_EQ(sent_to_worker<wire::Dead>(2).at(0).id, 0U);
}

TEST_F(HostsTest, WhoComesWithAViewHearsWhoOfItHasDied) {
  make_running_on_two();
  join_from(3, "b");
  say(kFirst, wire::Ended{0, 0, "killed by signal 9", 0, 1});
  adopt(on_hosts(view_of(2, 2, {0, 2, 3}), "abb"), 2);
  EXPECT_EQ(workers_sent<wire::Dead>(), (Ids{3})) << "2 has heard it before";
}

TEST_F(HostsTest, TheEndOfWhatLedToAWorkerIsNoProof) {
  make_running_on_two();
  say(kFirst, wire::Started{0, 4711});  // a connection to its host, say
  say(kFirst, wire::Ended{0, 0, "killed by signal 9"});
  EXPECT_TRUE(workers_sent<wire::Dead>().empty());
}

TEST_F(HostsTest, AnAgentThatIsGoneGetsNothingToDo) {
  make_running_on_two();
  out_ = machine_->on_closed(kSecond);
  resize(4);
  EXPECT_TRUE(started_at(kSecond).empty());
  agent(3000, "b", 2);
  EXPECT_EQ(started_at(3000), (Ids{3}));
}

TEST_F(HostsTest, WhoIsLostWithItsHostIsReplacedElsewhereAtNoCost) {
  make({.wanted = 3, .restarts = 0});
  agent(kFirst, "a", 3);
  agent(kSecond, "b", 1);
  resize(4);
  for (std::uint64_t id : {0, 1, 2}) join_from(id, "a");
  join_from(3, "b");
  adopt(on_hosts(view_of(2, 2, {0, 1, 2, 3}), "aaab"), 0);
  machine_->on_closed(kSecond);
  machine_->on_closed(link_of(3));
  agent(3000, "c", 1);
  EXPECT_TRUE(started_at(3000).empty());  // it may still be a member
  adopt(on_hosts(view_of(3, 3, {0, 1, 2}), "aaa"), 0);
  EXPECT_EQ(started_at(3000), (Ids{4}));
}

TEST_F(HostsTest, WhoWasLostWithItsHostMayComeBack) {
  make_running_on_two();
  machine_->on_closed(kSecond);
  machine_->on_closed(link_of(2));
  adopt(on_hosts(view_of(2, 2, {0, 1}), "aa"), 0);
  join_from(2, "b");
  EXPECT_TRUE(sent_to_worker<wire::Refusal>(2).empty());
  EXPECT_FALSE(sent_to_worker<wire::ViewNotice>(2).empty());
}

TEST_F(HostsTest, AHostThatComesBackWithoutItsWorkersHasRoomAgain) {
  make_running_on_two();
  machine_->on_closed(kSecond);
  machine_->on_closed(link_of(2));
  adopt(on_hosts(view_of(2, 2, {0, 1}), "aa"), 0);
  agent(3000, "b", 1);
  EXPECT_EQ(started_at(3000), (Ids{3}));
}

TEST_F(HostsTest, WhoOnlyWatchesStartsNobodyAndHearsAll) {
  make({.wanted = 1});
  agent(kFirst, "", 0);
  EXPECT_TRUE(started_at(kFirst).empty());
  agent(kSecond, "b", 1);
  join_from(0, "b");
  EXPECT_EQ(sent<wire::JobState>(kFirst).size(), 1U);
  say(link_of(0), wire::Bye{});
  ASSERT_EQ(sent<wire::Over>(kFirst).size(), 1U);
  EXPECT_EQ(wire::outcome_in(sent<wire::Over>(kFirst)[0].outcome), Outcome::finished);
  EXPECT_EQ(sent<wire::Over>(kSecond).size(), 1U);
}

TEST_F(HostsTest, AllAgentsHearThatThereWillBeNoView) {
  make({.wanted = 2});
  agent(kFirst, "a", 1);
  agent(kSecond, "b", 1);
  say(kSecond, wire::Ended{1, 0, "exit code 3"});
  for (auto link : {kFirst, kSecond}) {
    ASSERT_EQ(sent<wire::Over>(link).size(), 1U);
    EXPECT_EQ(wire::outcome_in(sent<wire::Over>(link)[0].outcome), Outcome::failed);
    EXPECT_NE(sent<wire::Over>(link)[0].reason.find("exit code 3"), std::string::npos);
  }
}

TEST_F(HostsTest, AgentsAreStoppedTogetherOrOneByOne) {
  make_running_on_two();
  say(kFirst, wire::Stop{"b", 1});
  EXPECT_TRUE(sent<wire::Stop>(kFirst).empty());
  ASSERT_EQ(sent<wire::Stop>(kSecond).size(), 1U);
  EXPECT_EQ(sent<wire::Stop>(kSecond)[0].force, 1);
  say(kFirst, wire::Stop{});
  EXPECT_EQ(sent<wire::Stop>(kFirst).size() + sent<wire::Stop>(kSecond).size(), 2U);
  say(link_of(0), wire::Stop{});  // no worker may
  EXPECT_TRUE(sent<wire::Stop>(kFirst).empty());
}

TEST_F(HostsTest, AnAgentOfOneHostSaysNothingOfWorkersOfAnother) {
  make_running_on_two();
  out_ = machine_->on_closed(kFirst);
  agent(3000, "a", 2);  // it names nobody: its workers are in the view and stay; those of host b are not its affair
  EXPECT_TRUE(started_at(3000).empty());
  EXPECT_EQ(machine_->view().size(), 3);
}

TEST_F(HostsTest, EveryAgentHearsHowTheJobIs) {
  make_running_on_two();
  resize(4);
  EXPECT_EQ(sent<wire::JobState>(kFirst).at(0).wanted, 4U);
  EXPECT_EQ(sent<wire::JobState>(kSecond).at(0).wanted, 4U);
}

}  // namespace
}  // namespace pliant::membership
