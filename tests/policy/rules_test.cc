#include <gtest/gtest.h>
#include <pliant/rules.h>
#include <pliant/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

namespace pliant::rules {
namespace {

TEST(Rule, AreMultiplied) {
  auto rate = constant(0.1) * linear_scaling(256) * step_decay({30, 60, 80}, 0.1);
  EXPECT_DOUBLE_EQ(rate({.epoch = 0, .batch = 256}), 0.1);
  EXPECT_DOUBLE_EQ(rate({.epoch = 29.99, .batch = 1024}), 0.4);
  EXPECT_DOUBLE_EQ(rate({.epoch = 30, .batch = 1024}), 0.04);
  EXPECT_DOUBLE_EQ(rate({.epoch = 85, .batch = 256}), 0.0001);
}

TEST(Rule, TheSquareRootIsForAdam) { EXPECT_DOUBLE_EQ(square_root_scaling(64)({.batch = 256}), 2); }

TEST(Rule, WarmUpBeginsWithOneWorkersRate) {
  auto rate = constant(0.1 * 8) * warm_up(5);
  EXPECT_DOUBLE_EQ(rate({.epoch = 0, .workers = 8}), 0.1);
  EXPECT_DOUBLE_EQ(rate({.epoch = 2.5, .workers = 8}), 0.1 * (2.5 * 7 / 5 + 1));
  EXPECT_DOUBLE_EQ(rate({.epoch = 5, .workers = 8}), 0.8);
  EXPECT_DOUBLE_EQ(warm_up(5)({.epoch = 1, .workers = 1}), 1);
  EXPECT_DOUBLE_EQ(warm_up_from(0.25, 4)({.epoch = 2}), 0.625);
}

TEST(Rule, DecaysEndWhereTheJobDoes) {
  EXPECT_DOUBLE_EQ(poly_decay(2)({.progress = 0.5}), 0.25);
  EXPECT_DOUBLE_EQ(poly_decay(2)({.progress = 1}), 0);
  EXPECT_DOUBLE_EQ(cosine_decay()({.progress = 0}), 1);
  EXPECT_NEAR(cosine_decay()({.progress = 0.5}), 0.5, 1e-15);
  EXPECT_NEAR(cosine_decay(0.1)({.progress = 1}), 0.1, 1e-15);
}

TEST(Rule, ABaseOfNothingIsAMistake) {
  EXPECT_THROW(linear_scaling(0), Failure);
  EXPECT_THROW(square_root_scaling(-1), Failure);
}

// ---- Dynamic SGD ----

TEST(Compensation, GrowsInEqualStepsToTheNewBatch) {
  Compensation growth(64, {.ramp = 8});
  EXPECT_EQ(growth.factor(99), 1);
  growth.change(100, 64 * 5);
  for (int along = 1; along <= 8; ++along) EXPECT_DOUBLE_EQ(growth.factor(99 + along), 1 + along / 8.0 * 4);
  EXPECT_EQ(growth.factor(108), 5);
  EXPECT_EQ(growth.factor(10'000), 5);
}

TEST(Compensation, LargerStepsTakeLonger) {
  auto last = [](double times) {
    Compensation growth(1);
    growth.change(0, times);
    std::uint64_t step = 0;
    while (growth.factor(step) != times) ++step;
    return step + 1;
  };
  EXPECT_EQ(last(2), 8U);
  EXPECT_EQ(last(4), 8U);
  EXPECT_EQ(last(6), 24U);
  EXPECT_EQ(last(12), 32U);
  EXPECT_EQ(last(100), 32U);
}

TEST(Compensation, AnotherChangeBeginsWhereTheRampIs) {
  Compensation growth(64, {.ramp = 8});
  growth.change(10, 64 * 5);  // steps 10 to 13 bring it to 3
  ASSERT_DOUBLE_EQ(growth.factor(13), 3);
  growth.change(14, 64 * 9);
  EXPECT_DOUBLE_EQ(growth.factor(14), 3 + 6 / 8.0);
  EXPECT_DOUBLE_EQ(growth.factor(21), 9);
  growth.change(22, 64 * 9);  // the same: no change
  EXPECT_DOUBLE_EQ(growth.factor(22), 9);
}

TEST(Compensation, ShrinksAtOnceUnlessItIsToBeLiteral) {
  Compensation shrinking(768);
  shrinking.change(5, 64);
  EXPECT_DOUBLE_EQ(shrinking.factor(5), 1 / 12.0);
  Compensation literal(768, {.ramp = 8, .literal = true});
  literal.change(5, 64);
  EXPECT_DOUBLE_EQ(literal.factor(5), 1 - 11 / 12.0 / 8);
  EXPECT_DOUBLE_EQ(literal.factor(12), 1 / 12.0);
}

TEST(Compensation, MovesToAnotherWorker) {
  Compensation here(64), there(1);
  here.change(10, 640);
  there.load(here.save());
  for (std::uint64_t step = 10; step < 50; ++step) EXPECT_EQ(here.factor(step), there.factor(step));
  EXPECT_THROW(there.load({1, 2}), Failure);
}

/// w' = w - γ η u' with u' = μ u + g, and the same with v = γ η u.
TEST(Compensation, BothFormsOfMomentumAgree) {
  constexpr double kMomentum = 0.9, kRate = 0.05;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  Compensation growth(64);
  double u = 0, v = 0, w = 1, x = 1, gamma = 1;
  for (std::uint64_t step = 0; step < 200; ++step) {
    if (step == 40) growth.change(step, 64 * 12);
    if (step == 50) growth.change(step, 64 * 3);  // in the middle of the ramp, downwards
    if (step == 90) growth.change(step, 64 * 4);
    auto before = std::exchange(gamma, growth.factor(step));
    auto gradient = normal(random) + w;
    u = kMomentum * u + gradient;
    w -= gamma * kRate * u;
    v = kMomentum * (gamma / before) * v + gamma * kRate * gradient;
    x -= v;
    ASSERT_NEAR(w, x, 1e-12) << step;
  }
}

/// Of the update in pure noise, in units of what it was: j steps after the batch has become k times as large.
double variance_after(double gamma, double momentum, double k, int j) {
  auto left = std::pow(momentum, 2 * j);
  return gamma * gamma * (left + (1 - left) / k);
}

double peak_over_target(double k, std::uint64_t ramp) {
  Compensation growth(1, {.ramp = ramp, .literal = true});
  growth.change(0, k);
  double peak = 0;
  for (int j = 1; j < 200; ++j) peak = std::max(peak, variance_after(growth.factor(j - 1), 0.9, k, j));
  return peak / k;
}

TEST(Compensation, KeepsTheNoiseDownAsPublished) {
  EXPECT_NEAR(peak_over_target(12, 1) * 12, 118.9, 0.05);  // at once
  for (auto [ramp, want] : {std::pair{4, 5.7}, {8, 3.0}, {16, 1.4}, {32, 1.0}})
    EXPECT_NEAR(peak_over_target(12, ramp), want, 0.05) << ramp;
  for (auto [ramp, want] : {std::pair{4, 2.3}, {8, 1.6}, {16, 1.1}, {32, 1.0}})
    EXPECT_NEAR(peak_over_target(4, ramp), want, 0.05) << ramp;
  EXPECT_NEAR(peak_over_target(1 / 12.0, 8) / 12, 2.84, 0.005);  // down over some steps raises it
}

TEST(Compensation, SimulatedNoiseIsThatOfTheFormula) {
  constexpr double kMomentum = 0.9;
  constexpr int kChains = 200'000;
  for (double k : {12.0, 4.0}) {
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal;
    Compensation growth(1);
    growth.change(0, k);
    std::vector<double> u(kChains);
    for (double& each : u) each = normal(random) / std::sqrt(1 - kMomentum * kMomentum);
    for (int j = 1; j <= 40; ++j) {
      double squares = 0;
      auto gamma = growth.factor(static_cast<std::uint64_t>(j - 1));
      for (double& each : u) {
        each = kMomentum * each + normal(random) / std::sqrt(k);
        squares += gamma * each * gamma * each;
      }
      auto variance = squares / kChains * (1 - kMomentum * kMomentum);
      auto want = variance_after(gamma, kMomentum, k, j);
      ASSERT_NEAR(variance / want, 1, 0.02) << "k " << k << ", step " << j;
    }
  }
}

// ---- AdaScale ----

/// The gradients of a linear layer of two inputs and outputs, with bias, whose loss is the sum of its outputs.
std::array<double, 6> gradient_of(double x, double y) { return {x, y, x, y, 1, 1}; }

double gain_of(std::pair<double, double> first, std::pair<double, double> second) {
  auto a = gradient_of(first.first, first.second);
  auto b = gradient_of(second.first, second.second);
  double spread = 0, squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    spread += (a[i] * a[i] + b[i] * b[i]) / 2;
    squares += (a[i] + b[i]) * (a[i] + b[i]) / 4;
  }
  auto variance = 2 * (spread - squares);  // per sample: each of the two is one
  AdaScale scale(1);
  scale.observe(variance, squares - variance / 2, 2);
  return scale.gain();
}

TEST(AdaScale, GainsAreThePublishedOnes) {
  EXPECT_NEAR(gain_of({1, 0}, {0, 1}), 4.0 / 3, 1e-6);
  EXPECT_NEAR(gain_of({1, 1}, {1, 1}), 1, 1e-6);
  EXPECT_NEAR(gain_of({-1, 1}, {1, -1}), 2, 1e-6);
  EXPECT_NEAR(gain_of({1, 4}, {5, 0.5}), 1.4688796680, 1e-6);
  EXPECT_NEAR(gain_of({-0.2, 3}, {5, 0.5}), 1.84728939, 1e-6);
}

TEST(AdaScale, StepsAreWorthTheirGain) {
  AdaScale scale(32);
  EXPECT_EQ(scale.gain(), 1);
  scale.advance();
  EXPECT_EQ(scale.steps(), 1);
  for (int i = 0; i < 100; ++i) {
    scale.observe(3200, 0, 128);  // nothing but noise: four times the batch is worth four steps
    scale.advance();
  }
  EXPECT_NEAR(scale.gain(), 4, 1e-9);
  EXPECT_NEAR(scale.steps(), 401, 1e-6);
  scale.observe(3200, 0, 32);
  EXPECT_NEAR(scale.gain(), 1, 1e-9);
}

TEST(AdaScale, IsAPlainMeanAtFirstAndStaysInBounds) {
  AdaScale scale(1);
  scale.observe(1, 1, 4);
  scale.observe(3, 5, 4);
  EXPECT_NEAR(scale.gain(), (2.0 + 3) / (2.0 / 4 + 3), 1e-12);
  scale.observe(-1000, -1000, 4);
  EXPECT_GE(scale.gain(), 1);
  EXPECT_LE(scale.gain(), 4);
  auto before = scale.gain();
  scale.observe(std::nan(""), 1, 4);
  EXPECT_EQ(scale.gain(), before);
}

TEST(AdaScale, MovesToAnotherWorker) {
  AdaScale here(8), there(1);
  here.observe(3, 5, 32);
  here.advance();
  there.load(here.save());
  for (auto* scale : {&here, &there}) scale->observe(7, 1, 64);
  EXPECT_EQ(here.save(), there.save());
  EXPECT_THROW(there.load({}), Failure);
}

// ---- layer-wise ----

TEST(Layerwise, RatiosAreThoseOfTheFormula) {
  LayerwiseOptions options{.trust = 0.02, .epsilon = 1e-8, .weight_decay = 0.1};
  EXPECT_NEAR(layerwise_ratio(5, 2, options), 0.02 * 5 / (2 + 0.1 * 5 + 1e-8), 1e-15);
  EXPECT_EQ(layerwise_ratio(0, 2, options), 1);
  EXPECT_EQ(layerwise_ratio(5, 0, options), 1);
  EXPECT_NEAR(clipped_layerwise_ratio(5, 2, 0.1, options), 0.04 / 0.1, 1e-8);
  EXPECT_EQ(clipped_layerwise_ratio(5, 2, 0.01, options), 1);
  EXPECT_EQ(clipped_layerwise_ratio(5, 0, 0.01, options), 1);
}

}  // namespace
}  // namespace pliant::rules
