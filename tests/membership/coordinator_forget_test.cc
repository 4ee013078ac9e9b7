// The coordinator and those who have ended: what it forgets of them, when, and what it still knows.
#include "membership/coordinator_job.h"

namespace pliant::membership {
namespace {

class CoordinatorForgetTest : public CoordinatorTest {
 protected:
  /// The view in force, without `id`, as those who are left settle on it.
  View without(std::uint64_t id) const {
    auto view = machine_->view();
    ++view.epoch;
    std::erase_if(view.members, [&](const auto& member) { return member.id == id; });
    return view;
  }
  /// A member is killed; the others settle it, and take in the one that is started for it: two views.
  void replace(std::uint64_t id, std::uint64_t by) {
    out_ = machine_->on_closed(link_of(id));
    end(id, false);
    adopt(without(id), 0);
    ASSERT_EQ(started(), (Ids{by}));
    say(kAgent, wire::Started{by, static_cast<int>(100 + by)});
    join_ready(by);
    ASSERT_FALSE(planned().empty());
    adopt_plan(0);
  }
};

TEST_F(CoordinatorForgetTest, FewAreKnownAfterManyHaveEnded) {
  make_running({.wanted = 2, .restarts = 1000});
  for (std::uint64_t id = 1; id < 200; ++id) replace(id, id + 1);
  EXPECT_LE(machine_->known(), 5U);
  EXPECT_EQ(machine_->memory().restarts, 801);
  EXPECT_EQ(machine_->memory().next_id, 201U);
  EXPECT_EQ(ids_of(machine_->view().members), (Ids{0, 200}));
}

TEST_F(CoordinatorForgetTest, WhoWasForgottenIsRefusedAndItsAgentIsAnswered) {
  make_running({.wanted = 2, .restarts = 1000});
  for (std::uint64_t id = 1; id < 10; ++id) replace(id, id + 1);
  auto before = machine_->memory();
  join(3);
  EXPECT_TRUE(has(refusal(3), "worker 3 has ended; its number is not used again"));
  say(kAgent, wire::Started{3, 103});
  end(3, false);
  ASSERT_EQ(sent<wire::Parted>(kAgent).size(), 1U);
  EXPECT_EQ(sent<wire::Parted>(kAgent)[0].goodbye, 0);
  EXPECT_TRUE(started().empty());
  say(kAgent, wire::Ended{4, 1, "exit code 0", 0, 2, static_cast<std::uint8_t>(Outcome::left)});
  EXPECT_EQ(sent<wire::Parted>(kAgent).at(0).goodbye, 1);
  out_ = machine_->on_gone(5);
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(machine_->memory(), before) << "nobody counts twice";
}

/// By a plan that another coordinator had made before.
TEST_F(CoordinatorForgetTest, AViewThatNamesOneAllTheSameNamesTheDead) {
  make_running({.wanted = 2, .restarts = 1000});
  for (std::uint64_t id = 1; id < 10; ++id) replace(id, id + 1);
  auto view = machine_->view();
  view.term += 2;
  view.planned = ++view.epoch;
  view.members = {view.members.at(0), view_of(1, 1, {3}).members.at(0)};
  adopt(view, 0);
  ASSERT_EQ(ids_of(machine_->view().members), (Ids{0, 3}));
  EXPECT_EQ(machine_->memory().ended, (std::map<std::uint64_t, std::uint64_t>{{3, 0}}));
  say(link_of(0), wire::Bye{static_cast<std::uint8_t>(Outcome::stopped), 5});
  EXPECT_EQ(machine_->verdict(), Outcome::stopped) << "nobody waits for it";
}

/// A newcomer dies while a plan is out that names it.
TEST_F(CoordinatorForgetTest, WhomAPlanMayStillNameIsNotForgotten) {
  make_running({.wanted = 2, .restarts = 1000});
  EXPECT_TRUE(resize(3).ok);
  say(kAgent, wire::Started{2, 102});
  join_ready(2);
  auto named = view_from(plan().view).or_throw();
  ASSERT_EQ(ids_of(named.members), (Ids{0, 1, 2}));
  out_ = machine_->on_closed(link_of(2));
  end(2, false);
  auto known = machine_->known();
  adopt(named, 0);
  EXPECT_EQ(machine_->known(), known);
  EXPECT_TRUE(machine_->memory().ended.contains(2));
}

TEST_F(CoordinatorForgetTest, WhoHasFinishedALoopIsNotForgotten) {
  make_running({.wanted = 2, .restarts = 1000});
  say(link_of(1), wire::LoopEnded{static_cast<std::uint8_t>(Outcome::finished), 5});
  out_ = machine_->on_closed(link_of(1));
  say(kAgent, wire::Ended{1, 1, "exit code 0", 0, 1, static_cast<std::uint8_t>(Outcome::finished)});
  auto view = machine_->view();
  view.epoch = view.planned = 9;
  view.members.pop_back();
  adopt(view, 0);
  EXPECT_TRUE(machine_->memory().outcomes.contains(1));
}

}  // namespace
}  // namespace pliant::membership
