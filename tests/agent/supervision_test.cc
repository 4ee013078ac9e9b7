#include "agent/supervision.h"

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <utility>

namespace pliant::agent {
namespace {

using namespace std::chrono_literals;
using Phase = Supervision::Phase;

constexpr Ending kWell{};
constexpr Ending kKilled{0, SIGKILL};
constexpr Ending kTerminated{0, SIGTERM};
constexpr Ending kUnknown{0, 0, true};

/// It keeps what was done; the coordinator is in reach unless a test says otherwise.
class PlayedDriver final : public Driver {
 public:
  Result<pid_t> start(std::uint64_t id) override { return static_cast<pid_t>(100 + id); }
  void signal(std::uint64_t id, int number) override { signals[id].push_back(number); }
  bool send(const wire::Message& message) override {
    if (missed) return false;
    letters.push_back(message);
    return true;
  }
  std::optional<Nanos> missed_for() const override { return missed; }
  void drain() override {}
  session::WorkerNote note_of(std::uint64_t id) const override {
    auto at = notes.find(id);
    return at == notes.end() ? session::WorkerNote{} : at->second;
  }
  void note_told(std::uint64_t id) override { told.push_back(id); }
  void forget(std::uint64_t id) override { forgotten.push_back(id); }
  std::string last_words(std::uint64_t /*id*/) override { return ""; }
  void say(const std::string& lines) override { said += lines; }
  void note(const std::string& /*what*/, std::uint64_t /*worker*/, const std::string& /*text*/) override {}

  template <class T>
  std::vector<T> sent() const {
    std::vector<T> found;
    for (const auto& letter : letters)
      if (const auto* message = std::get_if<T>(&letter)) found.push_back(*message);
    return found;
  }

  std::optional<Nanos> missed;
  std::vector<wire::Message> letters;
  std::map<std::uint64_t, std::vector<int>> signals;
  std::map<std::uint64_t, session::WorkerNote> notes;
  std::vector<std::uint64_t> told, forgotten;
  std::string said;
};

class Supervisions : public testing::Test {
 protected:
  void make(SupervisionOptions options = {}) {
    options.name = options.job = "job";
    options.grace = 10s;
    driver_ = {};
    supervision_.emplace(clock_, options, driver_);
  }
  void hear(const wire::Message& message) { supervision_->on_message(message); }
  /// A job of these workers, all of this host, and the view that the coordinator has told of.
  void make_running(const std::vector<std::uint64_t>& workers, const std::vector<std::uint64_t>& view) {
    SupervisionOptions options;
    options.wanted = static_cast<std::uint32_t>(workers.size());
    make(options);
    supervision_->on_slots(8);
    supervision_->on_connected();
    for (auto id : workers) hear(wire::Start{id});
    hear_view(view);
    driver_.letters.clear();
  }
  void hear_view(const std::vector<std::uint64_t>& members) {
    wire::JobState state;
    state.view.term = state.view.epoch = 1;
    for (auto id : members) state.view.members.push_back({id, static_cast<int>(100 + id), "@w"});
    hear(state);
  }
  void hear_over(Outcome outcome) { hear(wire::Over{static_cast<std::uint8_t>(outcome)}); }
  void finish(std::uint64_t id) { driver_.notes[id] = {Outcome::finished, 1, true}; }
  void ends(std::uint64_t id, const Ending& ending) { supervision_->on_ended({{id, ending}}); }
  /// The coordinator is gone for good, and everybody has ended.
  void run_out_of_patience() {
    driver_.missed = 1h;
    clock_.advance(10s);
    supervision_->on_time();
    ASSERT_EQ(supervision_->phase(), Phase::settling);
    ASSERT_TRUE(supervision_->judged());
  }
  Outcome outcome() const { return supervision_->verdict().outcome(); }
  int exit_status() const { return supervision_->verdict().exit_status(); }

  ManualClock clock_;
  PlayedDriver driver_;
  std::optional<Supervision> supervision_;
};

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

// ---- what need not be known any more ----

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
