#include "policy/action.h"

#include <gtest/gtest.h>

namespace pliant::policy {
namespace {

Action everything() {
  Action action = resize(4);
  action.also(batch_of(512)).also(scale_rate(0.5)).also(connect_by("direct")).also(stop()).also(say("enough"));
  action.also(replace(7)).also(share_out({{1, 0.5}, {2, 1}}));
  return action;
}

TEST(Action, ComesBackFromItsBytes) {
  for (const auto& action : {keep(), resize(3), batch_of(64), batch_per_worker(8), scale_rate(2), connect_by("ring"),
                             stop(), replace(0), share_out({{3, 0.25}}), everything()})
    EXPECT_EQ(encode(decode_action(encode(action)).or_throw()), encode(action));
}

TEST(Action, EveryTruncationIsRefused) {
  auto bytes = encode(everything());
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode_action(bytes.substr(0, size)).ok());
  EXPECT_FALSE(decode_action(bytes + "x").ok());
}

TEST(Action, LaterWishesReplaceEarlierOnes) {
  auto action = resize(2);
  action.also(resize(4)).also(batch_of(100)).also(batch_per_worker(10)).also(say("a")).also(say("b"));
  EXPECT_EQ(action.workers, 4);
  EXPECT_FALSE(action.global_batch);
  EXPECT_EQ(action.local_batch, 10U);
  EXPECT_EQ(action.text, "a; b");
}

TEST(Action, IsToldInWords) {
  EXPECT_EQ(describe(keep()), "nothing");
  EXPECT_EQ(describe(everything()),
            "4 workers, a batch of 512, 0.5 times the rate, another worker in place of worker 7, 0.5 of a share for "
            "worker 1, 1 of a share for worker 2, the topology 'direct', to stop, \"enough\"");
}

TEST(Action, WhatCannotBeIsNamed) {
  EXPECT_EQ(objection_to(everything()), "");
  EXPECT_EQ(objection_to(resize(0)), "a job of 0 workers cannot be");
  EXPECT_EQ(objection_to(batch_of(0)), "a batch of 0 cannot be");
  EXPECT_EQ(objection_to(connect_by("ring")), "there is no topology 'ring': only 'direct'");
  EXPECT_EQ(objection_to(scale_rate(-1)), "-1 times the rate cannot be");
  EXPECT_EQ(objection_to(share_out({{1, -1}, {2, 1}})), "-1 of a share cannot be");
  EXPECT_EQ(objection_to(share_out({{1, 0}, {2, 0}})), "somebody must have a share");
}

}  // namespace
}  // namespace pliant::policy
