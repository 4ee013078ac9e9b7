#include "agent/tenure.h"

#include <gtest/gtest.h>

#include <utility>

#include "agent/coordinator_memory.h"
#include "agent/election.h"
#include "simulation/twin_store.h"

namespace pliant::agent {
namespace {

using namespace std::chrono_literals;
using membership::Memory;

Memory memory_with(std::uint32_t wanted) {
  Memory memory;
  memory.wanted = wanted;
  memory.next_id = 3;
  return memory;
}

/// A coordinator at "tcp:here", and the store that says so.
class Tenures : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(server_.replace(place_key("job"), 0, "tcp:here").value().won); }
  Tenure& begin(bool founds = true, const Memory& own = memory_with(99)) {
    TenureEvents events;
    events.serve = [this](const auto& memory) {
      serves_ = true;
      found_ = memory;
    };
    events.succeeded = [this] { succeeded_ = true; };
    tenure_.emplace(scheduler_, server_.open(), TenureOptions{"job", "tcp:here", own, founds}, events);
    tenure_->begin();
    look_later();
    return *tenure_;
  }
  void look_later() {
    scheduler_.after(500ms, [this] {
      tenure_->look();
      look_later();
    });
  }
  void run_for(Nanos span) {
    auto end = scheduler_.now() + span;
    while (scheduler_.now() < end) scheduler_.step();
  }
  std::optional<Memory> stored() { return memory_from(server_.read(memory_key("job")).value().text); }

  sim::Scheduler scheduler_{1};
  sim::TwinServer server_{scheduler_};
  bool serves_ = false, succeeded_ = false;
  std::optional<Memory> found_;
  std::optional<Tenure> tenure_;
};

TEST_F(Tenures, ANewJobIsServedByWhoeverMayBeginIt) {
  begin(true);
  run_for(1s);
  EXPECT_TRUE(serves_);
  EXPECT_FALSE(found_);
}

TEST_F(Tenures, NobodyElseBeginsAJobOfWhichTheStoreKnowsNothing) {
  begin(false);
  run_for(10s);
  EXPECT_FALSE(serves_);
  ASSERT_TRUE(server_.replace(memory_key("job"), 0, memory_text(memory_with(2))).value().won);
  run_for(1s);
  ASSERT_TRUE(found_);
  EXPECT_EQ(found_->wanted, 2U);
}

TEST_F(Tenures, WhatCannotBeReadIsWaitedFor) {
  ASSERT_TRUE(server_.replace(memory_key("job"), 0, memory_text(memory_with(2))).value().won);
  server_.set_silent(true);
  begin();
  run_for(10s);
  EXPECT_FALSE(serves_);
  server_.set_silent(false);
  run_for(1s);
  ASSERT_TRUE(found_);
  EXPECT_EQ(found_->wanted, 2U);
}

Memory memory_in_view(std::uint64_t epoch, std::uint32_t lineage = 0) {
  auto memory = memory_with(2);
  memory.view.term = 1;
  memory.view.epoch = epoch;
  memory.view.restarts = lineage;
  memory.view.members = {{0, 100, "@w0"}};
  return memory;
}

/// What a coordinator of this host learned while the store did not answer, of this lineage or of another.
TEST_F(Tenures, WhatCouldNotBeStoredCountsIfItIsOfTheSameLineage) {
  for (std::uint32_t lineage : {0U, 1U}) {
    auto before = server_.read(memory_key("job")).value().revision;
    auto stored = memory_in_view(3);
    stored.invited = {{4, "b"}, {5, "b"}};
    stored.hosts = {"a"};
    stored.stopping = wire::Stopping::in_order;
    ASSERT_TRUE(server_.replace(memory_key("job"), before, memory_text(stored)).value().won);
    auto own = memory_in_view(4, lineage);
    own.wanted = 7;
    own.next_id = 20;
    own.stopping = wire::Stopping::at_once;
    own.outcomes = {{0, Outcome::finished}};
    own.ended = {{4, 4}};
    own.invited = {{6, "c"}};
    own.hosts = {"c"};
    begin(true, own);
    while (!std::exchange(serves_, false)) scheduler_.step();
    ASSERT_TRUE(found_);
    bool counts = lineage == 0;
    EXPECT_EQ(found_->wanted, 2U) << "what was asked for is no fact";
    EXPECT_EQ(found_->view.epoch, counts ? 4U : 3U);
    EXPECT_EQ(found_->next_id - memory_with(2).next_id > 64, counts);
    EXPECT_EQ(found_->stopping, counts ? wire::Stopping::at_once : wire::Stopping::in_order);
    EXPECT_EQ(found_->outcomes.contains(0), counts);
    EXPECT_EQ(found_->ended.contains(4), counts);
    EXPECT_EQ(found_->invited.contains(4), !counts) << "it has ended";
    EXPECT_TRUE(found_->invited.contains(5));
    EXPECT_EQ(found_->invited.contains(6), counts);
    EXPECT_EQ(found_->hosts.contains("c"), counts);
  }
}

/// This host's last coordinator began the job too, but could not store that, and so told nobody.
TEST_F(Tenures, AnotherBeginningCountsForNothing) {
  auto stored = memory_in_view(1);
  ASSERT_TRUE(server_.replace(memory_key("job"), 0, memory_text(stored)).value().won);
  auto own = memory_in_view(1);
  own.view.members[0].id += 7;
  own.said = wire::Over{static_cast<std::uint8_t>(Outcome::failed)};
  begin(true, own);
  while (!serves_) scheduler_.step();
  ASSERT_TRUE(found_);
  EXPECT_EQ(found_->view.members[0].id, stored.view.members[0].id);
  EXPECT_FALSE(found_->said);
}

/// Only the one that begins a job removes what is stored of it: if that is gone, somebody else has done it.
TEST_F(Tenures, AJobThatHasBegunIsNotBegunAnewBecauseTheStoreHasLostIt) {
  begin(true, memory_in_view(3));
  run_for(1s);
  EXPECT_TRUE(serves_);
  ASSERT_TRUE(found_);
  EXPECT_EQ(found_->view.epoch, 3U);
  EXPECT_GT(found_->next_id, memory_in_view(3).next_id + 64) << "others may have used some since";
}

TEST_F(Tenures, WhatIsGoneIsStoredAgain) {
  auto& tenure = begin();
  run_for(1s);
  tenure.remember(memory_with(5));
  run_for(1s);
  ASSERT_TRUE(stored());
  ASSERT_TRUE(server_.remove_all("job/").ok());
  run_for(2s);
  EXPECT_EQ(server_.read(place_key("job")).value().text, "tcp:here");
  ASSERT_TRUE(stored());
  EXPECT_EQ(stored()->wanted, 5U);
  auto now = server_.read(memory_key("job")).value();
  ASSERT_TRUE(server_.replace(memory_key("job"), now.revision, memory_text(memory_with(77))).value().won);
  run_for(2s);
  EXPECT_EQ(stored()->wanted, 5U) << "nobody else writes it";
  EXPECT_FALSE(succeeded_);
}

TEST_F(Tenures, WhatIsSaidWaitsForAPlaceThatIsGone) {
  auto& tenure = begin();
  run_for(1s);
  ASSERT_TRUE(server_.remove_all("job/").ok());
  bool sure = false;
  tenure.remember(memory_with(5));
  tenure.once_sure([&](bool is) {
    sure = is;
    EXPECT_EQ(server_.read(place_key("job")).value().text, "tcp:here");
    EXPECT_EQ(stored()->wanted, 5U);
  });
  run_for(2s);
  EXPECT_TRUE(sure);
}

TEST_F(Tenures, AJobThatIsOverMayBeForgotten) {
  auto& tenure = begin();
  run_for(1s);
  auto over = memory_in_view(3);
  over.said = wire::Over{static_cast<std::uint8_t>(Outcome::finished)};
  tenure.remember(over);
  run_for(1s);
  ASSERT_TRUE(stored());
  ASSERT_TRUE(server_.remove_all("job/").ok());
  bool said = false;
  tenure.once_sure([&](bool) { said = true; });
  run_for(5s);
  EXPECT_TRUE(said);
  EXPECT_FALSE(stored());
  EXPECT_EQ(server_.read(place_key("job")).value().revision, 0U);
}

/// Whoever has taken the place may have written what it knows before this one hears of that.
TEST_F(Tenures, ASuccessorsMemoryIsNotOverwritten) {
  auto& tenure = begin();
  run_for(1s);
  tenure.remember(memory_with(5));
  run_for(1s);
  auto now = server_.read(memory_key("job")).value();
  ASSERT_TRUE(server_.replace(place_key("job"), 1, "tcp:there").value().won);
  ASSERT_TRUE(server_.replace(memory_key("job"), now.revision, memory_text(memory_with(6))).value().won);
  run_for(2s);
  EXPECT_TRUE(succeeded_);
  EXPECT_EQ(stored()->wanted, 6U);
}

TEST_F(Tenures, WhatIsSaidIsStored) {
  auto& tenure = begin();
  run_for(1s);
  std::optional<bool> sure;
  tenure.remember(memory_with(5));
  tenure.once_sure([&](bool is) {
    sure = is;
    EXPECT_EQ(stored()->wanted, 5U);
  });
  EXPECT_FALSE(sure);
  run_for(1s);
  EXPECT_EQ(sure, true);
}

TEST_F(Tenures, AStoreThatDoesNotAnswerHoldsNothingUpForLong) {
  auto& tenure = begin();
  run_for(1s);
  server_.set_silent(true);
  std::optional<bool> sure;
  tenure.remember(memory_with(5));
  tenure.once_sure([&](bool is) { sure = is; });
  run_for(1s);
  EXPECT_FALSE(sure);
  run_for(Tenure::kPatience);
  EXPECT_EQ(sure, false);
  EXPECT_FALSE(tenure.is_stored());
  server_.set_silent(false);
  run_for(2s);
  EXPECT_TRUE(tenure.is_stored());
  EXPECT_EQ(stored()->wanted, 5U);
}

TEST_F(Tenures, WhoeverIsSucceededSaysNothing) {
  auto& tenure = begin();
  run_for(1s);
  ASSERT_TRUE(server_.replace(place_key("job"), 1, "tcp:there").value().won);
  bool said = false;
  tenure.remember(memory_with(5));
  tenure.once_sure([&](bool) { said = true; });
  run_for(10s);
  EXPECT_TRUE(succeeded_);
  EXPECT_FALSE(said);
}

TEST(Tenure, WithoutAStoreEverythingIsSureAtOnce) {
  sim::Scheduler clock(1);
  std::optional<Memory> found;
  TenureEvents events;
  events.serve = [&](const auto& memory) { found = memory; };
  Tenure tenure(clock, nullptr, {"job", "", memory_with(99)}, events);
  tenure.begin();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->wanted, 99U);
  bool sure = false;
  tenure.remember(memory_with(1));
  tenure.once_sure([&](bool is) { sure = is; });
  EXPECT_TRUE(sure);
  EXPECT_TRUE(tenure.is_stored());
}

}  // namespace
}  // namespace pliant::agent
