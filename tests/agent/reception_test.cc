#include "agent/reception.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

namespace pliant::agent {
namespace {

constexpr Link kAgent = 1, kFarAgent = 2, kStranger = 3;
constexpr pid_t kAgentsPid = 50, kStrangersPid = 60;
constexpr bool kSure = true, kUnsure = false;

pid_t pid_of(std::uint64_t worker) { return static_cast<pid_t>(100 + worker); }
Link link_of(std::uint64_t worker) { return 10 + worker; }

/// It keeps what was sent, and is sure when it is told to be.
class PlayedDesk final : public Desk {
 public:
  void send(Link link, const wire::Message& message) override { letters.push_back({link, message}); }
  void hang_up(Link link) override { hung_up.insert(link); }
  void hear(Link link) override {
    if (auto words = unread.extract(link)) words.mapped()();
  }
  std::optional<std::uint64_t> owner_of(pid_t pid) const override {
    auto at = owners.find(pid);
    return at == owners.end() ? std::nullopt : std::optional(at->second);
  }
  bool knows(std::uint64_t worker) const override {
    return std::ranges::any_of(owners, [&](const auto& entry) { return entry.second == worker; });
  }
  void know(std::uint64_t worker, pid_t pid) override { owners[pid] = worker; }
  void started(std::uint64_t worker, pid_t pid) override { owners[pid] = worker; }
  void watch(std::uint64_t worker, pid_t /*pid*/) override { watched.insert(worker); }
  bool is_agent(pid_t pid) const override { return pid == kAgentsPid; }
  session::WorkerNote note_of(std::uint64_t worker) const override {
    auto at = notes.find(worker);
    return at == notes.end() ? session::WorkerNote{} : at->second;
  }
  std::string charter() const override { return "charter"; }
  void remember(const membership::Memory& memory) override { remembered = memory; }
  Result<std::uint64_t> newest_checkpoint() override { return Error{Code::not_found, "there is none"}; }
  void once_sure(std::function<void(bool)> say) override { questions.push_back(std::move(say)); }

  /// To all that was asked by now.
  void answer(bool sure) {
    for (const auto& say : std::exchange(questions, {})) say(sure);
  }
  template <class T>
  std::vector<T> sent(Link link) const {
    std::vector<T> found;
    for (const auto& letter : letters)
      if (const auto* message = std::get_if<T>(&letter.message); message && letter.to == link)
        found.push_back(*message);
    return found;
  }

  membership::Letters letters;
  std::set<Link> hung_up;
  std::map<Link, std::function<void()>> unread;  // what has come on a connection, and was not taken in
  std::map<pid_t, std::uint64_t> owners;
  std::set<std::uint64_t> watched;
  std::map<std::uint64_t, session::WorkerNote> notes;
  std::optional<membership::Memory> remembered;
  std::vector<std::function<void(bool)>> questions;
};

class Receptions : public testing::Test {
 protected:
  void make(std::uint32_t wanted) {
    membership::CoordinatorOptions options;
    options.job = "job";
    options.wanted = wanted;
    reception_.emplace(clock_, options, std::nullopt, desk_, chronicle_);
    reception_->begin();
  }
  void say(Link link, const wire::Message& message) { reception_->on_message(link, message); }
  void hello(Link link, const std::string& host, std::uint32_t slots) {
    for (int time = 0; time < 2; ++time) say(link, wire::AgentHello{"job", host, slots});
  }
  void agent_comes(std::uint32_t slots = 8) {
    reception_->on_call(kAgent, {kAgentsPid});
    hello(kAgent, "", slots);
  }
  static wire::Join join_of(std::uint64_t worker, const std::string& host = "") {
    wire::Join join{"job", worker, pid_of(worker), "@w", 2, "0.1", "", {}, 0};
    join.host = host;
    return join;
  }
  void joins(std::uint64_t worker) {
    reception_->on_call(link_of(worker), {pid_of(worker)});
    say(link_of(worker), join_of(worker));
  }
  void starts(std::uint64_t worker) {
    say(kAgent, wire::Started{worker, pid_of(worker)});
    joins(worker);
  }
  /// In its first view, of which everything is stored.
  void make_running(std::uint32_t workers) {
    make(workers);
    agent_comes();
    for (std::uint64_t worker = 0; worker < workers; ++worker) starts(worker);
    settle();
  }
  /// Worker 0 here, worker 1 on host b.
  void make_running_on_two() {
    make(2);
    agent_comes(1);
    reception_->on_call(kFarAgent, {0, 1000});
    hello(kFarAgent, "b", 1);
    starts(0);
    say(kFarAgent, wire::Started{1, pid_of(1)});
    reception_->on_call(link_of(1), {0, 1});
    say(link_of(1), join_of(1, "b"));
    settle();
  }
  void settle() {
    desk_.answer(kSure);
    ASSERT_TRUE(reception_->coordinator().formed());
    ASSERT_TRUE(desk_.questions.empty());
    desk_.letters.clear();
  }
  void end(std::uint64_t worker) { say(kAgent, wire::Ended{worker, 0, "killed by signal 9", 0, 1}); }
  void stranger_comes() { reception_->on_call(kStranger, {kStrangersPid}); }
  std::string refusal(Link link) const {
    auto all = desk_.sent<wire::Refusal>(link);
    return all.empty() ? "" : all[0].reason;
  }

  ManualClock clock_;
  PlayedDesk desk_;
  Chronicle chronicle_{EventLog{}};
  std::optional<Reception> reception_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- what is said when ----

TEST_F(Receptions, TheFirstViewIsSaidToNobodyBeforeASuccessorWouldKnowIt) {
  make(2);
  agent_comes();
  desk_.letters.clear();
  starts(0);
  starts(1);
  ASSERT_TRUE(reception_->coordinator().formed());
  EXPECT_EQ(desk_.remembered->view.members.size(), 2U);
  auto says_view = [&] {
    for (const auto& state : desk_.sent<wire::JobState>(kAgent))
      if (state.view.epoch) return true;
    return !desk_.sent<wire::ViewNotice>(link_of(0)).empty() || !desk_.sent<wire::ViewNotice>(link_of(1)).empty();
  };
  EXPECT_FALSE(says_view());
  for (int time = 0; time < 3; ++time) {
    ASSERT_FALSE(desk_.questions.empty()) << "asked again";
    desk_.answer(kUnsure);
    EXPECT_FALSE(says_view());
  }
  desk_.answer(kSure);
  for (std::uint64_t worker : {0, 1}) EXPECT_EQ(desk_.sent<wire::ViewNotice>(link_of(worker)).size(), 1U);
  EXPECT_EQ(desk_.sent<wire::JobState>(kAgent).back().view.epoch, 1U);
}

TEST_F(Receptions, WhatFollowsTheFirstViewWaitsForIt) {
  make(1);
  agent_comes();
  starts(0);
  stranger_comes();
  desk_.letters.clear();
  auto first = std::exchange(desk_.questions, {});
  say(kStranger, wire::Resize{2});
  desk_.answer(kSure);
  EXPECT_TRUE(desk_.letters.empty()) << "not even a request to start somebody";
  for (const auto& tell : first) tell(kUnsure);
  EXPECT_TRUE(desk_.letters.empty());
  desk_.answer(kSure);
  auto kind_at = [&](std::size_t at) { return desk_.letters.at(at).message.index(); };
  EXPECT_EQ(kind_at(0), wire::Message(wire::ViewNotice{}).index());
  EXPECT_EQ(desk_.sent<wire::Answer>(kStranger).size(), 1U);
  EXPECT_EQ(desk_.sent<wire::Start>(kAgent).size(), 1U);
}

/// What was held back only because of the first view is older than what is said next.
TEST_F(Receptions, StatesComeInTheirOrder) {
  make(1);
  agent_comes();
  starts(0);
  auto first = std::exchange(desk_.questions, {});
  stranger_comes();
  say(kStranger, wire::Resize{2});
  auto second = std::exchange(desk_.questions, {});
  ASSERT_FALSE(second.empty());
  desk_.letters.clear();
  for (const auto& tell : first) tell(kSure);
  say(kStranger, wire::Resize{3});
  auto wanted = [&] {
    std::vector<std::uint32_t> all;
    for (const auto& state : desk_.sent<wire::JobState>(kAgent)) all.push_back(state.wanted);
    return all;
  };
  EXPECT_EQ(wanted(), (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_TRUE(desk_.sent<wire::Answer>(kStranger).empty());
  for (const auto& tell : second) tell(kSure);
  desk_.answer(kSure);
  EXPECT_EQ(wanted(), (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_EQ(desk_.sent<wire::Answer>(kStranger).size(), 2U);
}

TEST_F(Receptions, FactsAreSaidAtOnce) {
  make_running_on_two();
  end(0);
  EXPECT_EQ(desk_.sent<wire::Dead>(link_of(1)).size(), 1U);
  EXPECT_EQ(desk_.sent<wire::JobState>(kAgent).size(), 1U);
  EXPECT_EQ(desk_.sent<wire::JobState>(kFarAgent).size(), 1U);
  EXPECT_TRUE(desk_.sent<wire::Parted>(kAgent).empty());
  EXPECT_EQ(desk_.questions.size(), 1U);
  desk_.answer(kUnsure);
  EXPECT_EQ(desk_.sent<wire::Dead>(link_of(1)).size(), 1U) << "and not again";
}

TEST_F(Receptions, AnAnswerSaysIfASuccessorMightNotKnow) {
  make_running(1);
  stranger_comes();
  for (bool sure : {false, true}) {
    desk_.letters.clear();
    say(kStranger, wire::Resize{3});
    EXPECT_TRUE(desk_.sent<wire::Answer>(kStranger).empty());
    desk_.answer(sure);
    ASSERT_EQ(desk_.sent<wire::Answer>(kStranger).size(), 1U);
    auto answer = desk_.sent<wire::Answer>(kStranger)[0];
    EXPECT_EQ(answer.ok, 1);
    EXPECT_EQ(has(answer.text, "the store does not answer"), !sure) << answer.text;
  }
}

TEST_F(Receptions, ANoIsNoPromise) {
  make_running(1);
  stranger_comes();
  say(kStranger, wire::Resize{0});
  desk_.answer(kUnsure);
  ASSERT_EQ(desk_.sent<wire::Answer>(kStranger).size(), 1U);
  EXPECT_FALSE(has(desk_.sent<wire::Answer>(kStranger)[0].text, "store"));
}

TEST_F(Receptions, ThatAnEndWasHeardOfIsSaidOnlyIfItIsStored) {
  make_running(2);
  end(1);
  for (int time = 0; time < 3; ++time) {
    EXPECT_TRUE(desk_.sent<wire::Parted>(kAgent).empty());
    ASSERT_FALSE(desk_.questions.empty());
    desk_.answer(kUnsure);
  }
  EXPECT_TRUE(desk_.sent<wire::Parted>(kAgent).empty());
  desk_.answer(kSure);
  ASSERT_EQ(desk_.sent<wire::Parted>(kAgent).size(), 1U);
  EXPECT_EQ(desk_.sent<wire::Parted>(kAgent)[0].id, 1U);
  EXPECT_TRUE(desk_.questions.empty());
}

/// Nobody would end otherwise.
TEST_F(Receptions, HowTheJobEndedIsSaidEvenIfItCannotBeStored) {
  make_running(1);
  say(link_of(0), wire::Bye{static_cast<std::uint8_t>(Outcome::finished), 5});
  EXPECT_TRUE(desk_.sent<wire::Over>(kAgent).empty());
  desk_.answer(kUnsure);
  ASSERT_EQ(desk_.sent<wire::Over>(kAgent).size(), 1U);
  EXPECT_EQ(wire::outcome_in(desk_.sent<wire::Over>(kAgent)[0].outcome), Outcome::finished);
}

/// What is not stored yet is no reason to hold back what is.
TEST_F(Receptions, WhatIsSureDoesNotWaitForWhatIsNot) {
  make_running(3);
  stranger_comes();
  end(1);
  desk_.answer(kUnsure);
  auto of_the_end = std::exchange(desk_.questions, {});
  ASSERT_EQ(of_the_end.size(), 1U);
  say(kStranger, wire::Resize{4});
  desk_.answer(kSure);
  EXPECT_EQ(desk_.sent<wire::Answer>(kStranger).size(), 1U);
  EXPECT_TRUE(desk_.sent<wire::Parted>(kAgent).empty());
  of_the_end[0](kSure);
  EXPECT_EQ(desk_.sent<wire::Parted>(kAgent).size(), 1U);
}

// ---- who may speak ----

TEST_F(Receptions, AWorkerThatIsFasterThanItsAgentWaits) {
  make(1);
  agent_comes();
  joins(0);
  EXPECT_FALSE(reception_->coordinator().formed());
  EXPECT_TRUE(refusal(link_of(0)).empty());
  EXPECT_FALSE(desk_.watched.contains(0));
  say(kAgent, wire::Started{0, pid_of(0)});
  EXPECT_TRUE(reception_->coordinator().formed());
  EXPECT_TRUE(desk_.watched.contains(0));
  desk_.answer(kSure);
  EXPECT_EQ(desk_.sent<wire::ViewNotice>(link_of(0)).size(), 1U);
}

TEST_F(Receptions, WhomNoAgentNamesIsRefusedInTheEnd) {
  make(1);
  agent_comes();
  joins(0);
  clock_.advance(Reception::kTimeToSpeak);
  reception_->on_time();
  EXPECT_TRUE(refusal(link_of(0)).empty());
  clock_.advance(Nanos(1));
  reception_->on_time();
  EXPECT_TRUE(has(refusal(link_of(0)), "process 100 does not belong to this job"));
  EXPECT_TRUE(desk_.hung_up.contains(link_of(0)));
  say(kAgent, wire::Started{0, pid_of(0)});
  EXPECT_FALSE(reception_->coordinator().formed()) << "its connection is gone";
}

TEST_F(Receptions, StrangersAreRefused) {
  make_running(2);
  auto join = join_of(0);
  join.pid = kStrangersPid;
  stranger_comes();
  say(kStranger, join);
  EXPECT_TRUE(has(refusal(kStranger), "process 60 does not belong to this job"));
  EXPECT_TRUE(desk_.hung_up.contains(kStranger));
  EXPECT_EQ(reception_->refused(), 1U);

  desk_.letters.clear();
  stranger_comes();
  say(kStranger, join_of(0));
  EXPECT_TRUE(has(refusal(kStranger), "process 60 may not join in the name of process 100"));

  desk_.letters.clear();
  stranger_comes();
  say(kStranger, wire::AgentHello{"job", "", 1});
  EXPECT_TRUE(has(refusal(kStranger), "process 60 is not the agent of this job"));

  desk_.letters.clear();
  stranger_comes();
  say(kStranger, wire::Ended{0, 0, "killed by signal 9"});
  EXPECT_TRUE(has(refusal(kStranger), "join first"));
  EXPECT_EQ(reception_->refused(), 4U);
  EXPECT_FALSE(reception_->coordinator().over());
}

TEST_F(Receptions, AWorkersProcessHasThePlaceOfThatWorkerOnly) {
  make_running(2);
  reception_->on_call(kStranger, {pid_of(1)});
  auto join = join_of(0);
  join.pid = pid_of(1);
  say(kStranger, join);
  EXPECT_TRUE(has(refusal(kStranger), "process 101 belongs to worker 1, not to worker 0"));
}

TEST_F(Receptions, WhoeverCallsFromAfarDoesSoInItsOwnName) {
  make_running_on_two();
  reception_->on_call(kStranger, {0, 7});
  say(kStranger, join_of(1, "b"));
  EXPECT_TRUE(has(refusal(kStranger), "in the name of another worker"));
}

// ---- ends ----

/// Its agent is not there to say so, and its message was lost with another coordinator.
TEST_F(Receptions, WhatAWorkerHasWrittenDownCountsWhenItsProcessIsGone) {
  // Without the word of an agent nobody knows whether a program went on to its end by itself.
  const std::pair<session::WorkerNote, Outcome> kCases[] = {{{Outcome::finished, 1, true}, Outcome::finished},
                                                            {{Outcome::finished, 1, false}, Outcome::failed},
                                                            {{Outcome::running, 1, false}, Outcome::failed}};
  for (const auto& [note, verdict] : kCases) {
    desk_ = {};
    make_running(1);
    reception_->on_closed(kAgent);
    desk_.notes[0] = note;
    reception_->on_gone(0);
    EXPECT_EQ(reception_->coordinator().verdict(), verdict);
  }
}

/// The agent's word of the end may overtake them.
TEST_F(Receptions, AWorkersLastWordsComeBeforeTheWordOfItsEnd) {
  make_running(2);
  desk_.unread[link_of(1)] = [this] {
    say(link_of(1), wire::LoopEnded{static_cast<std::uint8_t>(Outcome::finished), 5});
  };
  say(kAgent, wire::Ended{1, 1, "exit code 0"});
  desk_.answer(kSure);
  ASSERT_EQ(desk_.sent<wire::Parted>(kAgent).size(), 1U);
  EXPECT_EQ(desk_.sent<wire::Parted>(kAgent)[0].goodbye, 1);
}

}  // namespace
}  // namespace pliant::agent
