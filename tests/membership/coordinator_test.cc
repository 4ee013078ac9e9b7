#include "membership/coordinator.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pliant::membership {
namespace {

constexpr Link kAgent = 1000;
using Ids = std::vector<std::uint64_t>;

Ids ids_of(const std::vector<wire::Member>& members) {
  Ids ids;
  for (const auto& member : members) ids.push_back(member.id);
  return ids;
}

/// A job as its coordinator sees it. Worker K speaks over link 10 + K.
class CoordinatorTest : public ::testing::Test {
 protected:
  static Link link_of(std::uint64_t id) { return 10 + id; }
  static wire::Join join_of(std::uint64_t id) {
    return {"job", id, static_cast<int>(100 + id), "@w" + std::to_string(id), 2, "0.1", "", {}, 0};
  }
  static View view_of(std::uint64_t term, std::uint64_t epoch, const Ids& ids) {
    View view;
    view.term = term;
    view.epoch = epoch;
    view.seed = 42;
    for (auto id : ids) view.members.push_back({id, static_cast<int>(100 + id), "@w" + std::to_string(id)});
    return view;
  }

  void make(CoordinatorOptions options, const std::optional<Memory>& memory = {}) {
    options.job = "job";
    options.seed = 42;
    machine_.emplace(options, memory);
  }
  /// With an agent that has no workers yet.
  void make_with_agent(CoordinatorOptions options) {
    make(options);
    hello();
    say(kAgent, wire::AgentHello{"job"});
  }
  /// A job with the view 1/1 of workers 0 … n-1, all started by the agent.
  void make_running(CoordinatorOptions options) {
    make_with_agent(options);
    auto n = options.start ? options.start : options.wanted;
    for (std::uint64_t id = 0; id < options.wanted; ++id) say(kAgent, wire::Started{id, static_cast<int>(100 + id)});
    for (std::uint64_t id = 0; id < n; ++id) join(id);
    ASSERT_TRUE(machine_->formed());
  }
  void hello() { say(kAgent, wire::AgentHello{"job"}); }

  void say(Link link, const wire::Message& message) { out_ = machine_->on_message(link, message); }
  void join(std::uint64_t id) { join(join_of(id)); }
  void join(const wire::Join& request) { out_ = machine_->on_join(link_of(request.id), request); }
  void join_ready(std::uint64_t id, const std::string& layout = "w[3]") {
    join(id);
    say(link_of(id), wire::Ready{layout});
  }
  void adopt(const View& view, std::uint64_t by) { say(link_of(by), wire::Adopted{notice_of(view), 5}); }
  void adopt_plan(std::uint64_t by) { adopt(view_from(plan().view).or_throw(), by); }
  void end(std::uint64_t id, bool good) {
    say(kAgent, wire::Ended{id, static_cast<std::uint8_t>(good), good ? "exit code 0" : "killed by signal 9"});
  }

  /// What the last event sent to a link, by kind.
  template <class T>
  std::vector<T> sent(Link link) const {
    std::vector<T> found;
    for (const auto& letter : out_)
      if (letter.to == link)
        if (const auto* message = std::get_if<T>(&letter.message)) found.push_back(*message);
    return found;
  }
  template <class T>
  std::vector<T> sent_to_worker(std::uint64_t id) const {
    return sent<T>(link_of(id));
  }
  template <class T>
  Ids workers_sent() const {
    Ids ids;
    for (const auto& letter : out_)
      if (std::holds_alternative<T>(letter.message) && letter.to != kAgent) ids.push_back(letter.to - 10);
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  std::string refusal(std::uint64_t id) const {
    auto all = sent_to_worker<wire::Refusal>(id);
    return all.empty() ? "" : all[0].reason;
  }
  Ids started() const {
    Ids ids;
    for (const auto& start : sent<wire::Start>(kAgent)) ids.push_back(start.id);
    return ids;
  }
  wire::Plan plan() const {
    for (const auto& letter : out_)
      if (const auto* found = std::get_if<wire::Plan>(&letter.message)) return *found;
    return {};
  }
  Ids planned() const { return ids_of(plan().view.members); }
  wire::Answer resize(std::uint32_t workers) {
    say(77, wire::Resize{workers});
    return sent<wire::Answer>(77).at(0);
  }
  wire::JobState state() const { return sent<wire::JobState>(kAgent).at(0); }

  std::optional<Coordinator> machine_;
  Letters out_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- gathering ----

TEST_F(CoordinatorTest, GivesEverybodyOneViewOnceAllAreThere) {
  make({.wanted = 3});
  join(2);
  join(0);
  EXPECT_TRUE(out_.empty());
  EXPECT_FALSE(machine_->formed());
  join(1);
  EXPECT_EQ(workers_sent<wire::ViewNotice>(), (Ids{0, 1, 2}));
  auto view = view_from(sent_to_worker<wire::ViewNotice>(1).at(0)).or_throw();
  EXPECT_EQ(view.hash(), machine_->view().hash());
  EXPECT_EQ(ids_of(view.members), (Ids{0, 1, 2}));
  EXPECT_EQ(view.members[2].address, "@w2");
  EXPECT_EQ(std::tuple(view.term, view.epoch, view.seed), std::tuple(1U, 1U, 42U));
}

TEST_F(CoordinatorTest, BeginsWithAsManyAsAreEnough) {
  make({.wanted = 4, .start = 2});
  join(3);
  join(1);
  EXPECT_EQ(ids_of(machine_->view().members), (Ids{1, 3}));
  join(0);  // a newcomer now
  EXPECT_EQ(workers_sent<wire::ViewNotice>(), (Ids{0}));
  EXPECT_EQ(ids_of(sent_to_worker<wire::ViewNotice>(0).at(0).members), (Ids{1, 3}));
}

TEST_F(CoordinatorTest, RefusesWhoDoesNotFitAndSaysWhy) {
  make({.wanted = 2});
  auto other = join_of(0);
  other.job = "another";
  join(other);
  EXPECT_TRUE(has(refusal(0), "'another'"));
  join(0);
  auto twin = join_of(0);
  twin.pid = 7;
  out_ = machine_->on_join(99, twin);
  EXPECT_TRUE(has(sent<wire::Refusal>(99).at(0).reason, "worker 0 has joined already"));
  auto built = join_of(1);
  built.build = "0.2";
  join(built);
  EXPECT_TRUE(has(refusal(1), "0.2")) << refusal(1);
  auto level = join_of(1);
  level.cpu_level = 1;
  join(level);
  EXPECT_TRUE(has(refusal(1), "CPU level")) << refusal(1);
  join(1);
  EXPECT_TRUE(machine_->formed());
}

TEST_F(CoordinatorTest, AWorkerThatIsCutOffMayComeAgain) {
  make({.wanted = 2});
  join(0);
  out_ = machine_->on_closed(link_of(0));
  join(1);
  EXPECT_FALSE(machine_->formed());
  join(0);
  EXPECT_TRUE(machine_->formed());
  out_ = machine_->on_closed(link_of(0));  // once the job runs, the line no longer matters
  EXPECT_EQ(machine_->view().size(), 2);
}

TEST_F(CoordinatorTest, ThoseWhoWaitAreToldThatTheFirstViewCannotForm) {
  make_with_agent({.wanted = 3});
  for (std::uint64_t id = 0; id < 3; ++id) say(kAgent, wire::Started{id, 100});
  join(0);
  end(2, true);
  EXPECT_TRUE(has(refusal(0), "worker 2 ended before the job began (exit code 0)")) << refusal(0);
  EXPECT_TRUE(started().empty()) << "nobody is replaced before the job has begun";
  join(1);
  EXPECT_TRUE(has(refusal(1), "worker 2"));
}

TEST_F(CoordinatorTest, AnEndBeforeTheFirstViewIsNoHarmIfEnoughAreLeft) {
  make_with_agent({.wanted = 3, .start = 2});
  for (std::uint64_t id = 0; id < 3; ++id) say(kAgent, wire::Started{id, 100});
  end(2, false);
  join(0);
  join(1);
  EXPECT_TRUE(machine_->formed());
}

// ---- takeover ----

TEST_F(CoordinatorTest, LearnsTheViewFromThoseWhoReportIt) {
  make({.wanted = 3});
  auto old_one = join_of(0);
  old_one.view = notice_of(view_of(4, 7, {0, 1, 2}));
  join(old_one);
  EXPECT_EQ(machine_->view().epoch, 7U);
  EXPECT_EQ(sent_to_worker<wire::Claim>(0).at(0).term, 5U);
  auto newer = join_of(1);
  newer.view = notice_of(view_of(6, 8, {0, 1}));
  join(newer);
  EXPECT_EQ(machine_->view().epoch, 8U);
  EXPECT_EQ(workers_sent<wire::Claim>(), (Ids{0, 1}));
  EXPECT_EQ(sent_to_worker<wire::Claim>(0).at(0).term, 7U);
  old_one.id = 2;
  old_one.pid = 102;
  join(old_one);
  EXPECT_EQ(machine_->view().epoch, 8U) << "older news";
}

TEST_F(CoordinatorTest, PlansOnlyAfterAMajorityPromised) {
  Memory memory{view_of(3, 9, {0, 1, 2, 4}), 5, 0, 5, 10};
  make({.wanted = 4}, memory);
  join_ready(3);
  for (std::uint64_t id : {1, 2, 4}) join(id);
  EXPECT_EQ(sent_to_worker<wire::Claim>(4).at(0).term, 4U);
  say(link_of(1), wire::Promise{4, notice_of(view_of(3, 9, {0, 1, 2, 4}))});
  say(link_of(2), wire::Promise{4, notice_of(view_of(3, 9, {0, 1, 2, 4}))});
  EXPECT_TRUE(planned().empty()) << "half, but not the half with the lowest id";
  say(link_of(4), wire::Promise{4, notice_of(view_of(3, 9, {0, 1, 2, 4}))});
  EXPECT_EQ(planned(), (Ids{0, 1, 2, 4, 3}));
  EXPECT_EQ(plan().term, 4U);
  EXPECT_EQ(plan().view.term, 4U);
  EXPECT_EQ(plan().view.epoch, 10U);
  EXPECT_EQ(plan().base, view_of(3, 9, {0, 1, 2, 4}).hash());
}

TEST_F(CoordinatorTest, OfExactlyHalfTheHalfWithTheLowestIdIsEnough) {
  make({.wanted = 1}, Memory{view_of(1, 1, {2, 5}), 1, 0, 6, 10});
  join(2);
  say(link_of(2), wire::Promise{2, notice_of(view_of(1, 1, {2, 5}))});
  EXPECT_EQ(planned(), (Ids{2}));
}

TEST_F(CoordinatorTest, ClaimsAboveWhoeverDeclines) {
  make({.wanted = 1}, Memory{view_of(1, 1, {0, 1}), 1, 0, 2, 10});
  join(0);
  say(link_of(0), wire::Decline{8, notice_of(view_of(8, 3, {0}))});
  EXPECT_EQ(machine_->view().epoch, 3U);
  EXPECT_EQ(sent_to_worker<wire::Claim>(0).back().term, 9U);
  say(link_of(0), wire::Decline{3, notice_of(view_of(8, 3, {0}))});
  EXPECT_TRUE(out_.empty()) << "an answer to an older claim";
}

TEST_F(CoordinatorTest, AHigherTermFromBelowMeansToClaimAgain) {
  make_running({.wanted = 3});
  adopt(view_of(2, 2, {0, 2}), 0);  // the members have settled a loss
  EXPECT_EQ(workers_sent<wire::Claim>(), (Ids{0, 2}));
  EXPECT_EQ(sent_to_worker<wire::Claim>(0).at(0).term, 3U);
  join_ready(3);
  EXPECT_TRUE(planned().empty());
  say(link_of(0), wire::Promise{3, notice_of(view_of(2, 2, {0, 2}))});
  EXPECT_EQ(planned(), (Ids{0, 2, 3}));
}

TEST_F(CoordinatorTest, TheFirstViewOfAPredecessorThatNobodyHeardOfIsSentAgain) {
  make({.wanted = 2}, Memory{view_of(1, 1, {0, 1}), 2, 0, 2, 10});
  join(1);
  EXPECT_EQ(ids_of(sent_to_worker<wire::ViewNotice>(1).at(0).members), (Ids{0, 1}));
  EXPECT_EQ(machine_->view().epoch, 1U) << "no second first view";
}

TEST_F(CoordinatorTest, StrangersAndOutsidersCannotMakeAView) {
  make_running({.wanted = 2});
  join(2);
  adopt(view_of(9, 9, {0, 1}), 2);  // not in it
  EXPECT_EQ(machine_->view().epoch, 1U);
  say(999, wire::Adopted{notice_of(view_of(9, 9, {0, 1})), 1});
  say(999, wire::Promise{9, notice_of(view_of(9, 9, {0, 1}))});
  say(999, wire::Bye{});
  say(999, wire::Ended{0, 0, ""});
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(machine_->view().epoch, 1U);
}

// ---- plans ----

TEST_F(CoordinatorTest, ANewcomerIsPlannedInOnceItIsReady) {
  make_running({.wanted = 3, .start = 2});
  join(2);
  EXPECT_EQ(workers_sent<wire::ViewNotice>(), (Ids{2}));
  EXPECT_TRUE(planned().empty());
  say(link_of(2), wire::Ready{"w[3]"});
  EXPECT_EQ(workers_sent<wire::Plan>(), (Ids{0, 1, 2})) << "the newcomer makes its connections";
  EXPECT_EQ(planned(), (Ids{0, 1, 2}));
  auto first = plan();
  join(1);  // reconnects
  EXPECT_EQ(sent_to_worker<wire::Plan>(1).at(0).view.epoch, first.view.epoch);
  adopt(machine_->view(), 1);
  EXPECT_EQ(workers_sent<wire::Plan>(), (Ids{1})) << "it may have come before its base";
  adopt(view_from(first.view).or_throw(), 2);
  EXPECT_TRUE(planned().empty());
  EXPECT_EQ(machine_->view().epoch, 2U);
}

TEST_F(CoordinatorTest, ANewViewVoidsThePlan) {
  make_running({.wanted = 3, .start = 2});
  join_ready(2);
  auto left = view_of(1, 2, {0});  // worker 1 has left meanwhile
  adopt(left, 0);
  EXPECT_EQ(planned(), (Ids{0, 2}));
  EXPECT_EQ(plan().base, left.hash());
  EXPECT_EQ(plan().view.epoch, 3U);
}

TEST_F(CoordinatorTest, TheSurplusIsDetachedFromTheEnd) {
  make_running({.wanted = 4});
  EXPECT_EQ(resize(2).ok, 1);
  EXPECT_EQ(planned(), (Ids{0, 1}));
  EXPECT_EQ(workers_sent<wire::Plan>(), (Ids{0, 1, 2, 3}));
  say(link_of(3), wire::Ready{"w[3]"});  // detached, and faster than the report
  adopt(view_of(1, 2, {0, 1}), 0);
  EXPECT_EQ(state().spare, 1U);
  EXPECT_EQ(state().wanted, 2U);
  EXPECT_TRUE(planned().empty());
}

TEST_F(CoordinatorTest, SparesComeBeforeNewcomersAndLowIdsFirst) {
  make_running({.wanted = 4});
  (void)resize(2);
  adopt_plan(0);
  join_ready(4);
  say(link_of(3), wire::Ready{"w[3]"});
  say(link_of(2), wire::Ready{"w[3]"});
  (void)resize(4);
  EXPECT_EQ(planned(), (Ids{0, 1, 2, 3}));
  (void)resize(5);
  EXPECT_EQ(planned(), (Ids{0, 1, 2, 3, 4}));
  EXPECT_TRUE(started().empty());
}

TEST_F(CoordinatorTest, APlanIsTakenBackByAnother) {
  make_running({.wanted = 3, .start = 2});
  join_ready(2);
  EXPECT_EQ(planned(), (Ids{0, 1, 2}));
  out_ = machine_->on_gone(2);
  EXPECT_EQ(planned(), (Ids{0, 1})) << "without whom it shall not come true";
  EXPECT_EQ(plan().view.epoch, 2U);
}

TEST_F(CoordinatorTest, NothingIsPlannedWhileAMemberIsMissing) {
  make_running({.wanted = 3, .start = 2});
  out_ = machine_->on_gone(1);
  join_ready(2);
  EXPECT_TRUE(planned().empty());
}

TEST_F(CoordinatorTest, WhoSharesOtherStateIsRefusedWithBothLayouts) {
  make_running({.wanted = 3, .start = 2});
  join_ready(2, "w[3]");
  adopt_plan(2);
  (void)resize(4);
  join_ready(3, "w[4]");
  EXPECT_TRUE(has(refusal(3), "w[4]") && has(refusal(3), "w[3]")) << refusal(3);
  EXPECT_TRUE(planned().empty());
  auto again = join_of(3);
  again.layout = "w[4]";
  join(again);
  EXPECT_TRUE(has(refusal(3), "w[4]"));
}

TEST_F(CoordinatorTest, WhoComesBackWithItsLayoutIsReady) {
  make({.wanted = 2}, Memory{view_of(1, 4, {0}), 2, 0, 5, 10});
  auto spare = join_of(4);
  spare.layout = "w[3]";
  join(spare);
  join(0);
  say(link_of(0), wire::Promise{2, notice_of(view_of(1, 4, {0}))});
  EXPECT_EQ(planned(), (Ids{0, 4}));
}

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
