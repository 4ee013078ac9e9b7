#include <csignal>

#include "agent/supervision_place.h"

namespace pliant::agent {
namespace {

// ---- told to end ----

TEST_F(Supervisions, AnAttachedAgentWithoutWorkersWaitsForTheCoordinatorsWord) {
  SupervisionOptions options;
  options.attached = true;
  make(options);
  supervision_->on_connected();
  supervision_->on_signal(SIGTERM);
  EXPECT_EQ(driver_.sent<wire::Stop>().size(), 1U);
  ASSERT_EQ(supervision_->phase(), Phase::settling);
  EXPECT_FALSE(supervision_->judged());
  clock_.advance(Deaths::kLastWord - 1ms);
  EXPECT_FALSE(supervision_->judged());
  hear_over(Outcome::finished);
  ASSERT_TRUE(supervision_->judged());
  EXPECT_EQ(outcome(), Outcome::finished);
  EXPECT_EQ(exit_status(), 0);
}

TEST_F(Supervisions, AnAttachedAgentDoesNotWaitForEver) {
  SupervisionOptions options;
  options.attached = true;
  make(options);
  supervision_->on_connected();
  supervision_->on_signal(SIGTERM);
  clock_.advance(Deaths::kLastWord);
  ASSERT_TRUE(supervision_->judged());
  EXPECT_EQ(outcome(), Outcome::stopped);
  EXPECT_EQ(exit_status(), 128 + SIGTERM);
}

/// All had been killed before the coordinator heard of the stop.
TEST_F(Supervisions, AJobThatHadFailedBeforeItWasStoppedHasFailed) {
  make_running({0}, {0});
  ends(0, kKilled);
  supervision_->on_signal(SIGTERM);
  hear_over(Outcome::failed);
  ASSERT_TRUE(supervision_->judged());
  EXPECT_EQ(outcome(), Outcome::failed);
  EXPECT_EQ(exit_status(), 128 + SIGKILL);
  EXPECT_NE(driver_.said.find("failed: worker 0 ended"), std::string::npos) << driver_.said;
}

TEST_F(Supervisions, AStopFromElsewhereEndsTheWorkersOfAJobOnOneHostToo) {
  make_running({0, 1}, {0, 1});
  hear(wire::Stop{});
  ASSERT_EQ(supervision_->phase(), Phase::stopping);
  for (std::uint64_t id : {0, 1}) EXPECT_EQ(driver_.signals[id], (std::vector<int>{SIGTERM, SIGCONT}));
  clock_.advance(10s);
  supervision_->on_time();
  EXPECT_EQ(driver_.signals[1].back(), SIGKILL);
  ends(0, kTerminated);
  ends(1, kKilled);
  ASSERT_EQ(supervision_->phase(), Phase::settling);
  hear_over(Outcome::stopped);
  ASSERT_TRUE(supervision_->judged());
  EXPECT_EQ(outcome(), Outcome::stopped);
  EXPECT_EQ(exit_status(), 143);
}

TEST_F(Supervisions, AStopByForceKillsThemAtOnce) {
  make_running({0}, {0});
  hear(wire::Stop{"", 1});
  EXPECT_EQ(driver_.signals[0], std::vector<int>{SIGKILL});
}

TEST_F(Supervisions, OfAPartTheExitStatusOfAStopIsNotTheJobs) {
  SupervisionOptions options;
  options.part = true;
  options.host = "b";
  make(options);
  supervision_->on_connected();
  hear(wire::Start{0});
  hear_view({0});
  hear(wire::Stop{});
  ends(0, kTerminated);
  hear_over(Outcome::stopped);
  ASSERT_TRUE(supervision_->judged());
  EXPECT_EQ(exit_status(), 0);
}

TEST_F(Supervisions, ACoordinatorThatComesAfterASignalHearsOfItToo) {
  make_running({0}, {0});
  supervision_->on_signal(SIGTERM);
  driver_.letters.clear();
  supervision_->on_connected();
  EXPECT_EQ(driver_.sent<wire::Stop>().size(), 1U);
}

TEST_F(Supervisions, ACoordinatorThatComesLaterHearsWithWhichForce) {
  struct Case {
    std::vector<int> signals;
    int force;
  };
  for (const auto& [signals, force] : {Case{{SIGINT}, 0}, Case{{SIGINT, SIGINT}, 1}, Case{{SIGQUIT}, 1}}) {
    make_running({0}, {0});
    for (auto number : signals) supervision_->on_signal(number);
    EXPECT_EQ(driver_.sent<wire::Stop>().back().force, force) << signals.size();
    driver_.letters.clear();
    supervision_->on_connected();
    ASSERT_EQ(driver_.sent<wire::Stop>().size(), 1U);
    EXPECT_EQ(driver_.sent<wire::Stop>()[0].force, force) << signals.size();
  }
  make_running({0}, {0});
  hear(wire::Stop{"", 1});
  supervision_->on_connected();
  ASSERT_EQ(driver_.sent<wire::Stop>().size(), 1U);
  EXPECT_EQ(driver_.sent<wire::Stop>()[0].force, 1) << "what was heard from the one before";
}

TEST_F(Supervisions, SlotsThatComeWhileItIsStoppingAreNotAnnounced) {
  for (bool part : {false, true}) {
    SupervisionOptions options;
    options.part = part;
    make(options);
    supervision_->on_slots(1);
    supervision_->on_connected();
    hear(wire::Start{0});
    supervision_->on_signal(SIGTERM);
    driver_.letters.clear();
    supervision_->on_slots(8);
    EXPECT_TRUE(driver_.sent<wire::AgentHello>().empty());
    supervision_->on_connected();
    for (const auto& hello : driver_.sent<wire::AgentHello>()) EXPECT_EQ(hello.slots, 0U);
    hear(wire::Start{1});
    EXPECT_EQ(supervision_->workers().size(), 1U) << "nobody is started any more";
  }
}

TEST_F(Supervisions, WhoeverWasLeftBehindIsEndedWithTheJob) {
  make_running({0, 1, 2, 3}, {0, 3});
  finish(0);
  driver_.notes[1] = {Outcome::left, 1};
  ends(0, kWell);
  hear_over(Outcome::finished);
  supervision_->on_time();
  EXPECT_TRUE(driver_.signals.empty()) << "it may be about to end by itself";
  clock_.advance(Supervision::kPatience);
  for (int time = 0; time < 2; ++time) supervision_->on_time();
  EXPECT_EQ(driver_.signals.size(), 1U) << "1 has left, and 3 was in the last view: they may be busy with what follows";
  EXPECT_EQ(driver_.signals[2], (std::vector{SIGTERM, SIGCONT}));
  clock_.advance(10s);
  supervision_->on_time();
  EXPECT_EQ(driver_.signals[2].back(), SIGKILL);
  for (std::uint64_t id : {1, 3}) ends(id, kWell);
  ends(2, kKilled);
  ASSERT_TRUE(supervision_->judged());
  EXPECT_EQ(outcome(), Outcome::finished);
  EXPECT_EQ(exit_status(), 0);
  EXPECT_TRUE(driver_.said.empty()) << driver_.said;
}

TEST_F(Supervisions, WhoeverWaitsGoesOnIfTheJobIsNotOverAfterAll) {
  make_running({0, 1}, {0});
  hear_over(Outcome::finished);
  clock_.advance(Supervision::kPatience / 2);
  auto state = supervision_->word().state();
  ++state.view.epoch;
  hear(state);
  clock_.advance(Supervision::kPatience);
  supervision_->on_time();
  EXPECT_TRUE(driver_.signals.empty());
}

// ---- what the coordinator hears ----

TEST_F(Supervisions, WorkersThatEndedWhileThereWasNoAgentAreToldUntilThatWasHeard) {
  SupervisionOptions options;
  options.attached = true;
  make(options);
  supervision_->miss({5, 105, false});
  supervision_->miss({6, 106, true});
  finish(5);
  for (int time = 0; time < 2; ++time) {
    driver_.letters.clear();
    supervision_->on_connected();
    ASSERT_EQ(driver_.sent<wire::Started>().size(), 2U);
    EXPECT_EQ(driver_.sent<wire::Started>()[0].id, 5U);
    ASSERT_EQ(driver_.sent<wire::Ended>().size(), 2U);
    const auto& [first, second] = std::pair(driver_.sent<wire::Ended>()[0], driver_.sent<wire::Ended>()[1]);
    EXPECT_EQ(first.id, 5U);
    EXPECT_EQ(wire::outcome_in(first.outcome), Outcome::finished) << "by what it has written down";
    EXPECT_EQ(first.view, 1U);
    EXPECT_EQ(first.taken, 0);
    EXPECT_EQ(second.taken, 1) << "that was told before, and does not cost anything again";
    EXPECT_TRUE(std::holds_alternative<wire::AgentHello>(driver_.letters.back())) << "that is all";
  }
  hear(wire::Parted{5, 1});
  EXPECT_EQ(driver_.told, std::vector<std::uint64_t>{5});
  driver_.letters.clear();
  supervision_->on_connected();
  ASSERT_EQ(driver_.sent<wire::Ended>().size(), 1U);
  EXPECT_EQ(driver_.sent<wire::Ended>()[0].id, 6U);
}

TEST_F(Supervisions, AnEndIsToldAgainUntilThatWasHeard) {
  make_running({0, 1}, {0, 1});
  ends(1, kKilled);
  EXPECT_EQ(driver_.sent<wire::Ended>().size(), 1U);
  driver_.letters.clear();
  supervision_->on_connected();  // the one that was told has died with it
  EXPECT_EQ(driver_.sent<wire::Ended>().size(), 1U);
  hear(wire::Parted{1, 0});
  driver_.letters.clear();
  supervision_->on_connected();
  EXPECT_TRUE(driver_.sent<wire::Ended>().empty());
  EXPECT_EQ(driver_.sent<wire::Started>().size(), 1U) << "the one that runs";
}

// ---- how it ended ----

/// The coordinator was being replaced when the view of workers 2 and 3 came into force, and has said nothing since.
TEST_F(Supervisions, WhoeverHasFinishedCountsEvenOutsideOfTheLastViewThatWasHeardOf) {
  make_running({0, 2, 3}, {0});
  driver_.missed = 1ms;
  ends(0, kKilled);
  finish(2);
  ends(2, kWell);
  ends(3, kKilled);
  run_out_of_patience();
  EXPECT_EQ(outcome(), Outcome::finished);
  EXPECT_EQ(exit_status(), 0);
}

TEST_F(Supervisions, AMemberOfTheLastKnownViewThatWasKilledDoesNotSpoilWhatOthersFinished) {
  make_running({0, 2}, {0});
  ends(0, kKilled);
  finish(2);
  ends(2, kWell);
  hear_over(Outcome::finished);
  supervision_->on_time();
  ASSERT_TRUE(supervision_->judged());
  EXPECT_EQ(outcome(), Outcome::finished);
  EXPECT_EQ(exit_status(), 0);
}

TEST_F(Supervisions, IfAllWhoFinishedFailedAfterTheirLoopTheJobHasFailed) {
  for (bool said : {true, false}) {
    make_running({0, 1, 2}, {0, 1, 2});
    for (std::uint64_t id : {0, 1}) {
      finish(id);
      ends(id, {3});
    }
    ends(2, kWell);  // it left before
    if (said) hear_over(Outcome::finished);
    run_out_of_patience();
    EXPECT_EQ(outcome(), Outcome::failed);
    EXPECT_EQ(exit_status(), 3);
  }
}

TEST_F(Supervisions, OneThatFinishedAndPerhapsEndedWellIsEnough) {
  for (const auto& ending : {kWell, kUnknown}) {
    make_running({0, 1}, {0, 1});
    for (std::uint64_t id : {0, 1}) finish(id);
    ends(0, {3});
    ends(1, ending);
    hear(wire::Parted{1, 1});
    hear_over(Outcome::finished);
    run_out_of_patience();
    EXPECT_EQ(outcome(), Outcome::finished);
    EXPECT_EQ(exit_status(), 0);
  }
}

/// Its program may have another loop. Whoever ended by itself has decided that there is none.
TEST_F(Supervisions, WhoeverIsKilledAfterALoopHasNotFinished) {
  const std::pair<Ending, Outcome> kCases[] = {
      {kKilled, Outcome::running}, {kUnknown, Outcome::running}, {kWell, Outcome::finished}, {{3}, Outcome::finished}};
  for (const auto& [ending, outcome] : kCases) {
    make_running({0, 1}, {0, 1});
    driver_.notes[0] = {Outcome::finished, 1, false};
    ends(0, ending);
    ASSERT_EQ(driver_.sent<wire::Ended>().size(), 1U);
    EXPECT_EQ(wire::outcome_in(driver_.sent<wire::Ended>()[0].outcome), outcome) << ending.words();
  }
}

/// The coordinator answers an end before it says that there is a view, and asks for others in between.
TEST_F(Supervisions, AnAttachedAgentStartsWhoeverIsAskedForAfterADeath) {
  SupervisionOptions options;
  options.attached = true;
  make(options);
  supervision_->take_up(1, 101);
  supervision_->on_slots(8);
  ends(1, kUnknown);
  supervision_->on_connected();
  hear(wire::Parted{1, 0});
  hear(wire::Start{3});
  hear_view({0, 1});
  EXPECT_NE(supervision_->find(3), nullptr);
}

TEST_F(Supervisions, WithoutAWordOfAnybodyAJobThatHasBegunHasFailed) {
  make_running({0}, {0});
  ends(0, kWell);
  run_out_of_patience();
  EXPECT_EQ(outcome(), Outcome::failed);
  EXPECT_EQ(exit_status(), 1);
}

TEST_F(Supervisions, APartWaitsForACoordinatorThatHasNotHeardHowItsWorkersEnded) {
  for (bool reachable : {true, false}) {
    SupervisionOptions options;
    options.part = true;
    options.host = "a";
    make(options);
    supervision_->on_slots(1);
    supervision_->on_connected();
    hear(wire::Start{0});
    hear_view({0});
    hear(wire::stop_of(wire::Stopping::in_order));
    if (!reachable) driver_.missed = 0s;
    ends(0, kWell);
    ASSERT_EQ(supervision_->phase(), Phase::settling);
    clock_.advance(Deaths::kLastWord);
    EXPECT_EQ(supervision_->judged(), reachable);
    clock_.advance(Supervision::kLoneliness);
    EXPECT_TRUE(supervision_->judged());
  }
}

}  // namespace
}  // namespace pliant::agent
