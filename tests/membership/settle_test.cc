#include "membership/settle.h"

#include <gtest/gtest.h>

namespace pliant::membership {
namespace {

using Kind = Verdict::Kind;

Report between(std::uint64_t step) { return {.step = step}; }
Report in(std::uint64_t step) { return {.step = step, .in_step = true}; }
Report complete(std::uint64_t step) { return {.step = step, .in_step = true, .complete = true}; }
Report closed(std::uint64_t step) { return {.step = step, .in_step = true, .complete = true, .closed = true}; }
Report blank() { return {.blank = true}; }

void expect(const std::vector<Report>& reports, Kind kind, std::uint64_t step, bool begun) {
  const auto verdict = settle(reports);
  EXPECT_EQ(verdict.contradiction, "");
  EXPECT_EQ(verdict.kind, kind);
  EXPECT_EQ(verdict.step, step);
  EXPECT_EQ(verdict.begun, begun);
}

TEST(Settle, NothingIsMissingIfAllAreAtTheSamePoint) {
  expect({between(5), between(5)}, Kind::go_on, 5, false);
  expect({complete(5), complete(5)}, Kind::go_on, 6, false);
  expect({complete(5), closed(5)}, Kind::go_on, 6, false);
}

TEST(Settle, AStepThatNobodyHasIsReducedAgain) {
  expect({in(5), in(5)}, Kind::redo, 5, true);
  expect({in(5), between(5)}, Kind::redo, 5, true);  // the second has nothing to submit
}

TEST(Settle, WhatNotAllHaveNobodyHasActedOn) {
  expect({in(5), complete(5), complete(5)}, Kind::redo, 5, true);
  EXPECT_NE(settle({in(5), closed(5)}).contradiction.find("closed step 5"), std::string::npos);
  EXPECT_NE(settle({in(5), complete(5), between(6)}).contradiction.find("closed step 5"), std::string::npos);
}

TEST(Settle, OneMayBeInTheNextStepAlready) {
  expect({complete(5), in(6)}, Kind::redo, 6, true);
  expect({closed(5), in(6)}, Kind::redo, 6, true);
  expect({closed(5), complete(5), between(6)}, Kind::go_on, 6, false);
  expect({complete(5), between(6)}, Kind::go_on, 6, false);
}

TEST(Settle, NewcomersGetTheStateOfTheLowestWhoHasIt) {
  expect({blank(), between(5), blank(), between(5)}, Kind::go_on, 5, false);
  EXPECT_EQ(settle({blank(), between(5), blank(), between(5)}).state_from, 1);
  EXPECT_EQ(settle({between(5), between(5)}).state_from, -1);
  expect({blank(), complete(5), between(6)}, Kind::go_on, 6, false);
  expect({in(5), blank()}, Kind::redo, 5, true);
}

TEST(Settle, AJobBeginsWithoutState) {
  expect({blank(), blank()}, Kind::go_on, 0, false);
  EXPECT_EQ(settle({blank(), blank()}).state_from, 0);
}

TEST(Settle, ContradictionsAreNamed) {
  EXPECT_EQ(settle({between(4), in(4), in(6)}).contradiction, "ranks 0 and 2: one is at step 4, the other at 6");
  EXPECT_NE(settle({between(5), between(6)}).contradiction.find("not begun"), std::string::npos);
  EXPECT_NE(settle({complete(5), between(5)}).contradiction.find("not begun"), std::string::npos);
  EXPECT_NE(settle({complete(5), complete(6)}).contradiction.find("step 6 complete"), std::string::npos);
  EXPECT_NE(settle({{.layout = 1}, {.layout = 2}}).contradiction.find("different things"), std::string::npos);
  EXPECT_NE(settle({{.step = 5, .digest = 1}, {.step = 5, .digest = 2}}).contradiction.find("state"),
            std::string::npos);
  EXPECT_EQ(settle({{.step = 5, .digest = 1}, {.step = 5}}).contradiction, "");  // not told
  EXPECT_EQ(
      settle({{.step = 5, .in_step = true, .complete = true, .digest = 1}, {.step = 6, .digest = 2}}).contradiction,
      "");
}

// ---- the next view ----

View view_of(std::uint64_t term, std::uint64_t epoch, std::vector<std::uint64_t> ids) {
  View view{term, epoch, 42, epoch, {}};
  for (auto id : ids) view.members.push_back({id, 0, "@" + std::to_string(id)});
  return view;
}

View with_newcomers(View view, std::vector<std::uint64_t> ids) {
  view.newcomers = std::move(ids);
  return view;
}

const View kNow = view_of(3, 7, {1, 2, 3});
const View kPlan = view_of(5, 8, {1, 2, 3, 4});

std::vector<Outlook> all_with(std::uint64_t plan) { return {{plan}, {plan}, {plan}}; }

TEST(NextView, IsThePlanThatAllHold) {
  EXPECT_EQ(next_view(kNow, all_with(kPlan.hash()), kPlan)->hash(), with_newcomers(kPlan, {4}).hash());
  EXPECT_FALSE(next_view(kNow, {{kPlan.hash()}, {kPlan.hash()}, {0}}, kPlan));
  EXPECT_FALSE(next_view(kNow, {{kPlan.hash()}, {kPlan.hash()}, {99}}, kPlan));
  EXPECT_FALSE(next_view(kNow, all_with(0), std::nullopt));
}

TEST(NextView, IsWithoutThoseWhoLeave) {
  const auto next = next_view(kNow, {{}, {0, Leaving::yes}, {}}, std::nullopt);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->hash(), view_of(3, 8, {1, 3}).hash());
  const auto planned = next_view(kNow, {{kPlan.hash(), Leaving::yes}, {kPlan.hash()}, {kPlan.hash()}}, kPlan);
  EXPECT_EQ(planned->hash(), with_newcomers(view_of(5, 8, {2, 3, 4}), {4}).hash());
}

TEST(NextView, SomebodyWithTheStateAlwaysStays) {
  EXPECT_FALSE(next_view(kNow, {{0, Leaving::yes}, {0, Leaving::yes}, {0, Leaving::yes}}, std::nullopt));
  const auto hash = kPlan.hash();
  EXPECT_EQ(next_view(kNow, {{hash, Leaving::yes}, {hash, Leaving::yes}, {hash, Leaving::yes}}, kPlan)->hash(),
            with_newcomers(kPlan, {4}).hash());
  const auto strangers = view_of(5, 8, {4, 5});
  EXPECT_FALSE(next_view(kNow, all_with(strangers.hash()), strangers));
}

TEST(NextView, AJobEndsWhenAllLeaveAndNobodyComes) {
  EXPECT_TRUE(nobody_goes_on({{0, Leaving::yes}, {0, Leaving::yes}}));
  EXPECT_FALSE(nobody_goes_on({{0, Leaving::yes}, {0, Leaving::no}}));
  EXPECT_FALSE(nobody_goes_on({{0, Leaving::yes}, {0, Leaving::once_relieved}}));
  // Beside one that stays, whoever was told to leave goes at once, and whoever comes relieves the last one.
  const auto two = view_of(3, 7, {1, 2});
  EXPECT_EQ(next_view(two, {{0, Leaving::once_relieved}, {}}, std::nullopt)->hash(), view_of(3, 8, {2}).hash());
  EXPECT_FALSE(next_view(two, {{0, Leaving::once_relieved}, {0, Leaving::yes}}, std::nullopt));
}

TEST(NextView, APlanThatChangesNobodyIsNoChange) {
  const auto same = view_of(5, 8, {1, 2, 3});
  EXPECT_FALSE(next_view(kNow, all_with(same.hash()), same));
}

TEST(NextView, NewcomersVoteOnceTheyHaveClosedAStep) {
  const auto now = with_newcomers(kNow, {2, 3});
  const auto next = next_view(now, all_with(0), std::nullopt);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->hash(), view_of(3, 8, {1, 2, 3}).hash());
  const auto without = next_view(now, {{}, {0, Leaving::yes}, {}}, std::nullopt);
  EXPECT_EQ(without->hash(), view_of(3, 8, {1, 3}).hash());
  EXPECT_EQ(next_view(now, all_with(kPlan.hash()), kPlan)->hash(), with_newcomers(kPlan, {4}).hash());
}

}  // namespace
}  // namespace pliant::membership
