#include "policy/rate_plan.h"

#include <gtest/gtest.h>

namespace pliant::policy {
namespace {

TEST(RatePlan, WithoutARuleTheRateIsTheUsers) {
  RatePlan plan;
  auto rate = plan.next({.step = 3, .batch = 64}, {}, 0.25);
  EXPECT_EQ(rate.scheduled, 0.25);
  EXPECT_EQ(rate.factor, 1);
  EXPECT_FALSE(plan.done());
}

TEST(RatePlan, CompensationFollowsTheBatchOfEachStep) {
  RatePlan plan;
  plan.set_rule(rules::constant(0.1));
  plan.compensate({.ramp = 4});
  EXPECT_EQ(plan.next({.step = 0, .batch = 64}, {}, 9).factor, 1);
  EXPECT_EQ(plan.next({.step = 1, .batch = 64}, {}, 9).factor, 1);
  for (int along = 1; along <= 4; ++along) {
    auto rate = plan.next({.step = 1 + static_cast<std::uint64_t>(along), .batch = 320}, {}, 9);
    EXPECT_DOUBLE_EQ(rate.scheduled, 0.1);
    EXPECT_DOUBLE_EQ(rate.factor, 1 + along);
  }
}

TEST(RatePlan, AdaScaleAsksTheRuleForItsOwnSteps) {
  RatePlan plan;
  plan.set_rule(rules::Rule([](const rules::Where& where) { return static_cast<double>(where.step); }));
  plan.adascale(32, 100);
  // Nothing but noise: four times the batch is worth four steps.
  for (int step = 0; step < 24; ++step) {
    auto rate = plan.next({.step = static_cast<std::uint64_t>(step), .batch = 128}, monitor::NoiseSample{3200, 0}, 9);
    EXPECT_NEAR(rate.factor, 4, 1e-9);
    EXPECT_NEAR(rate.scheduled, 4 * step, 1);
    EXPECT_FALSE(plan.done()) << step;
  }
  plan.next({.step = 24, .batch = 128}, monitor::NoiseSample{3200, 0}, 9);
  plan.next({.step = 25, .batch = 128}, monitor::NoiseSample{3200, 0}, 9);
  EXPECT_TRUE(plan.done());
}

TEST(RatePlan, ItsStateIsAllItKnows) {
  RatePlan here, there;
  for (auto* plan : {&here, &there}) {
    plan->compensate({});
    plan->adascale(64, 0);
  }
  for (std::uint64_t step = 0; step < 20; ++step)
    here.next({.step = step, .batch = step < 10 ? 64.0 : 512.0}, monitor::NoiseSample{50, 2}, 1);
  there.state() = here.state();
  for (std::uint64_t step = 20; step < 50; ++step) {
    auto a = here.next({.step = step, .batch = 512}, monitor::NoiseSample{50, 1}, 1);
    auto b = there.next({.step = step, .batch = 512}, monitor::NoiseSample{50, 1}, 1);
    EXPECT_EQ(a.factor, b.factor) << step;
  }
}

}  // namespace
}  // namespace pliant::policy
