#include "scale/model.h"

#include <gtest/gtest.h>

#include <random>

namespace pliant::scale {
namespace {

TEST(StepModel, ReductionsHideBehindGradients) {
  StepModel model{.alpha_g = 0.01, .beta_g = 0.001, .alpha = 0.03, .beta = 0.002, .gamma = 1};
  EXPECT_DOUBLE_EQ(model.seconds(1, 30), 0.04);
  EXPECT_DOUBLE_EQ(model.seconds(4, 30), 0.04 + 0.034);
  model.gamma = 10;
  EXPECT_NEAR(model.seconds(4, 30), 0.04 * std::pow(1 + std::pow(0.85, 10), 0.1), 1e-12);
  EXPECT_DOUBLE_EQ(model.rate(1, 30), 750);
}

TEST(StepModel, IsFoundAgainFromWhatItMade) {
  StepModel truth{.alpha_g = 0.01, .beta_g = 0.001, .alpha = 0.02, .beta = 0.003, .gamma = 2};
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, 0.01);
  std::vector<Observation> seen;
  for (int workers : {1, 2, 3, 4, 8})
    for (double batch : {16.0, 32.0, 64.0})
      for (int i = 0; i < 5; ++i)
        seen.push_back({workers, batch, truth.seconds(workers, batch) * std::exp(noise(random))});
  auto model = fit(seen);
  for (int workers : {1, 2, 5, 8, 12})
    for (double batch : {16.0, 48.0, 96.0})
      EXPECT_NEAR(model.seconds(workers, batch) / truth.seconds(workers, batch), 1, 0.05) << workers << ", " << batch;
}

TEST(StepModel, WhatWasNotSeenCostsNothing) {
  auto alone = fit({{1, 32, 0.1}, {1, 64, 0.18}});
  EXPECT_NEAR(alone.seconds(8, 64), 0.18, 0.005);
  EXPECT_NEAR(alone.seconds(1, 128), 0.34, 0.02);
  auto two = fit({{1, 32, 0.1}, {2, 32, 0.12}});
  EXPECT_NEAR(two.seconds(2, 32), 0.12, 0.002);
  EXPECT_NEAR(two.seconds(9, 32), 0.12, 0.002);
  EXPECT_NEAR(fit({{2, 32, 0.1}}).seconds(2, 32), 0.1, 0.002);
}

TEST(StatisticalEfficiency, FallsWithTheBatchTheMoreTheLessNoiseThereIs) {
  EXPECT_DOUBLE_EQ(statistical_efficiency(100, 64, 64), 1);
  EXPECT_DOUBLE_EQ(statistical_efficiency(100, 100, 300), 0.5);
  EXPECT_GT(statistical_efficiency(10'000, 100, 300), 0.95);
  EXPECT_DOUBLE_EQ(statistical_efficiency(100, 64, 32), 1);  // smaller ones are not asked for
}

}  // namespace
}  // namespace pliant::scale
