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

}  // namespace
}  // namespace pliant::membership
