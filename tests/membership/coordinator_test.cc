// The coordinator and views: the first one, taking over, planning.
#include "membership/coordinator_job.h"

namespace pliant::membership {
namespace {

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

/// Fewer were asked for after the first had died; the second was lost with its agent.
TEST_F(CoordinatorTest, AJobThatNobodyIsLeftToBeginFails) {
  make_with_agent({.wanted = 2});
  for (std::uint64_t id = 0; id < 2; ++id) say(kAgent, wire::Started{id, 100});
  resize(1);
  end(1, false);
  EXPECT_TRUE(sent<wire::Over>(kAgent).empty()) << "the other one is enough";
  wire::Ended taken{0, 0, "it ended while there was no agent", 1};
  say(kAgent, taken);
  ASSERT_EQ(sent<wire::Over>(kAgent).size(), 1U) << machine_->describe();
  EXPECT_EQ(machine_->verdict(), Outcome::failed);
}

// ---- takeover ----

TEST_F(CoordinatorTest, ASuccessorWithoutMemoryTakesADeathForNoFailedBeginning) {
  make({.wanted = 2});
  hello();
  say(kAgent, wire::Started{1, 101});
  say(kAgent, wire::Ended{0, 0, "killed by signal 9", 0, 3});  // it was in view 3
  hello();
  EXPECT_TRUE(sent<wire::Over>(kAgent).empty());
  auto member = join_of(1);
  member.view = notice_of(view_of(4, 4, {1}));
  join(member);
  EXPECT_EQ(refusal(1), "");
  EXPECT_EQ(machine_->view().epoch, 4U);
}

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

/// One member reports a view before the others know that it is in force: they decline until they do.
TEST_F(CoordinatorTest, WhoeverAdoptsTheViewIsAskedAgainForItsPromise) {
  make_running({.wanted = 3});
  const auto next = view_of(2, 2, {0, 1, 2});
  adopt(next, 0);
  auto claim = sent_to_worker<wire::Claim>(1).at(0);
  say(link_of(1), wire::Decline{2, notice_of(view_of(1, 1, {0, 1, 2}))});
  EXPECT_TRUE(workers_sent<wire::Claim>().empty()) << "not yet";
  adopt(next, 1);
  ASSERT_EQ(workers_sent<wire::Claim>(), (Ids{1}));
  EXPECT_EQ(sent_to_worker<wire::Claim>(1).at(0).term, claim.term);
  say(link_of(1), wire::Promise{claim.term, notice_of(next), 0, {}});
  adopt(next, 1);
  EXPECT_TRUE(workers_sent<wire::Claim>().empty()) << "it has promised";
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
  say(link_of(3), wire::Ready{"w[3]", 1});  // detached, and faster than the report
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

TEST_F(CoordinatorTest, WhatMembersShareNewcomersMustShare) {
  make_running({.wanted = 2});
  say(link_of(1), wire::Shares{"w[3]"});
  say(link_of(0), wire::Shares{"w[4]"});
  EXPECT_TRUE(out_.empty()) << "members find out among themselves";
  say(kAgent, wire::Resize{3});
  join(2);
  say(link_of(2), wire::Shares{"w[5]"});  // not for it to say
  say(link_of(2), wire::Ready{"w[4]"});
  EXPECT_TRUE(has(refusal(2), "worker 2 shares other state than worker 1: w[4]; not w[3]")) << refusal(2);
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

/// The coordinator before this one has put it into a view, and died before it could say so.
TEST_F(CoordinatorTest, WhoHasNotHeardThatItIsAMemberIsNotTakenForAnEvictedOne) {
  for (std::uint64_t knows : {3, 4}) {
    make({.wanted = 1, .checkpoints = true}, Memory{view_of(3, 4, {2}), 1, 0, 5, 10});
    auto member = join_of(2);
    member.layout = "w[3]";
    member.knows = knows;
    join(member);
    ASSERT_EQ(sent_to_worker<wire::ViewNotice>(2).size(), 1U);
    if (knows == 3) adopt(view_of(3, 4, {2}), 2);
    out_ = machine_->on_time(std::chrono::minutes(1));
    out_ = machine_->on_time(std::chrono::minutes(2));
    EXPECT_EQ(machine_->needs_checkpoint(), knows == 4) << "it knows view " << knows;
  }
}

}  // namespace
}  // namespace pliant::membership
