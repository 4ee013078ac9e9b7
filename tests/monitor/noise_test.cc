#include "monitor/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace pliant::monitor {
namespace {

using Vector = std::vector<double>;

double squares_of(const Vector& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return sum;
}

void add(Vector& to, const Vector& what, double times) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += times * what[i];
}

/// What the reduction of these gradients would have measured: each is the mean over so many samples.
Moments moments_of(const std::vector<Vector>& gradients, const std::vector<int>& samples) {
  Moments moments;
  Vector mean(gradients[0].size());
  for (int count : samples) moments.samples += count;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    add(mean, gradients[k], samples[k] / moments.samples);
    moments.spread += samples[k] / moments.samples * squares_of(gradients[k]);
  }
  moments.squares = squares_of(mean);
  moments.contributors = static_cast<int>(gradients.size());
  return moments;
}

/// A mean and its standard error.
struct Tally {
  double sum = 0, squares = 0;
  int count = 0;
  void add(double value) {
    sum += value;
    squares += value * value;
    ++count;
  }
  double mean() const { return sum / count; }
  double error() const { return std::sqrt((squares / count - mean() * mean()) / (count - 1)); }
};

using Draw = std::function<Vector()>;  // one sample's gradient

void expect_unbiased(const Draw& draw, const std::vector<int>& samples, double variance, double signal) {
  Tally variances, signals;
  for (int round = 0; round < 4000; ++round) {
    std::vector<Vector> gradients;
    for (int count : samples) {
      Vector mean(draw().size());
      for (int i = 0; i < count; ++i) add(mean, draw(), 1.0 / count);
      gradients.push_back(std::move(mean));
    }
    auto sample = noise_of(moments_of(gradients, samples));
    ASSERT_TRUE(sample);
    variances.add(sample->variance);
    signals.add(sample->signal);
  }
  EXPECT_NEAR(variances.mean(), variance, 3 * variances.error());
  EXPECT_NEAR(signals.mean(), signal, 3 * signals.error());
}

TEST(Noise, IsUnbiasedForGaussians) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  Vector truth(10), deviation(10);
  double variance = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    truth[i] = 0.3 * std::sin(static_cast<double>(i));
    deviation[i] = 0.2 + 0.1 * static_cast<double>(i);
    variance += deviation[i] * deviation[i];
  }
  auto draw = [&] {
    Vector gradient(truth);
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += deviation[i] * normal(random);
    return gradient;
  };
  expect_unbiased(draw, {4, 4}, variance, squares_of(truth));
  expect_unbiased(draw, {4, 4, 4, 4, 4}, variance, squares_of(truth));
  expect_unbiased(draw, {1, 2, 9}, variance, squares_of(truth));  // workers with uneven batches
}

/// Softmax regression has gradients that can be written down, so that its noise is known exactly.
TEST(Noise, IsUnbiasedForSoftmaxRegression) {
  constexpr int kSamples = 200, kFeatures = 4, kClasses = 3;
  std::mt19937 random(2);
  std::normal_distribution<double> normal;
  std::vector<Vector> gradients;  // of each sample
  Vector weights(kFeatures * kClasses);
  for (double& weight : weights) weight = 0.3 * normal(random);
  for (int sample = 0; sample < kSamples; ++sample) {
    int target = sample % kClasses;
    Vector features(kFeatures), odds(kClasses);
    for (double& feature : features) feature = normal(random) + (target == 1 ? 0.7 : 0);
    double total = 0;
    for (int c = 0; c < kClasses; ++c) {
      double logit = 0;
      for (int f = 0; f < kFeatures; ++f) logit += weights[c * kFeatures + f] * features[f];
      total += odds[c] = std::exp(logit);
    }
    Vector gradient(weights.size());
    for (int c = 0; c < kClasses; ++c)
      for (int f = 0; f < kFeatures; ++f)
        gradient[c * kFeatures + f] = (odds[c] / total - (c == target ? 1 : 0)) * features[f];
    gradients.push_back(std::move(gradient));
  }
  Vector truth(weights.size());
  double squares = 0;
  for (const auto& gradient : gradients) {
    add(truth, gradient, 1.0 / kSamples);
    squares += squares_of(gradient) / kSamples;
  }
  auto variance = squares - squares_of(truth);
  auto draw = [&] { return gradients[random() % kSamples]; };
  expect_unbiased(draw, {8, 8, 8}, variance, squares_of(truth));
  expect_unbiased(draw, {16, 1}, variance, squares_of(truth));
}

TEST(Noise, TwoGradientsOfOneContributorAreAsGoodAsThoseOfTwo) {
  Vector before{1, 2, 3}, now{2, 0, 1};
  auto pair = moments_of_two(squares_of(before), 8, squares_of(now), 24, 1 * 2 + 2 * 0 + 3 * 1);
  auto two = moments_of({before, now}, {8, 24});
  EXPECT_DOUBLE_EQ(pair.spread, two.spread);
  EXPECT_DOUBLE_EQ(pair.squares, two.squares);
  EXPECT_EQ(pair.samples, two.samples);
  EXPECT_EQ(pair.contributors, two.contributors);
}

TEST(Noise, SaysNothingOfWhatItCannotKnow) {
  EXPECT_FALSE(noise_of({1, 1, 32, 1}));
  EXPECT_FALSE(noise_of({0, 0, 0, 0}));
  EXPECT_FALSE(noise_of({std::nan(""), 1, 32, 2}));
  EXPECT_FALSE(noise_of({std::numeric_limits<double>::infinity(), 1, 32, 2}));
}

TEST(NoiseScale, StartsAtTheFirstSampleAndForgets) {
  NoiseScale scale(0.9);
  EXPECT_FALSE(scale.value());
  scale.add({100, 2}, 1);
  EXPECT_DOUBLE_EQ(*scale.value(), 50);  // not a tenth of it
  for (int i = 0; i < 500; ++i) scale.add({30, 10}, 1);
  EXPECT_NEAR(*scale.value(), 3, 1e-9);
}

TEST(NoiseScale, IsTheQuotientOfMeansAndNotTheMeanOfQuotients) {
  NoiseScale scale(0.999999999);
  scale.add({4, 1}, 1);
  scale.add({4, 3}, 1);
  EXPECT_NEAR(*scale.value(), 2, 1e-6);  // and not (4 + 4/3) / 2
}

TEST(NoiseScale, SeveralContributorsAreSeveralSteps) {
  NoiseScale one(0.9), many(0.9);
  for (int i = 0; i < 4; ++i) one.add({8, 1}, 1);
  many.add({8, 1}, 4);
  for (auto* scale : {&one, &many}) scale->add({1, 1}, 1);
  EXPECT_NEAR(*one.value(), *many.value(), 1e-12);
}

TEST(NoiseScale, NoSignalIsNoNumber) {
  NoiseScale scale;
  scale.add({5, -1}, 2);
  EXPECT_FALSE(scale.value());
  EXPECT_EQ(scale.signal(), 0);
  EXPECT_DOUBLE_EQ(scale.variance(), 5);
}

TEST(NoiseScale, WhatIsBiasedGivesWay) {
  NoiseScale scale;
  scale.add({90, 1}, 2, true);
  EXPECT_TRUE(scale.biased());
  scale.add({10, 1}, 2);
  EXPECT_FALSE(scale.biased());
  EXPECT_DOUBLE_EQ(*scale.value(), 10);
  for (int i = 0; i < 1000; ++i) scale.add({10, 1}, 2);
  scale.add({90, 1}, 2, true);  // alone again: what several said is better
  EXPECT_FALSE(scale.biased());
  EXPECT_NEAR(*scale.value(), 10, 1e-9);
  for (int i = 0; i < 1000; ++i) scale.add({90, 1}, 2, true);  // but not for ever
  EXPECT_TRUE(scale.biased());
  EXPECT_NEAR(*scale.value(), 90, 1e-9);
  scale.add({10, 1}, 2);
  EXPECT_FALSE(scale.biased());
  EXPECT_NEAR(*scale.value(), 10, 1e-9);
}

TEST(NoiseScale, MovesToAnotherWorker) {
  NoiseScale here, there;
  here.add({90, 1}, 2, true);
  there.load(here.save());
  for (auto* scale : {&here, &there}) scale->add({70, 2}, 2, true);
  EXPECT_EQ(here.save(), there.save());
}

}  // namespace
}  // namespace pliant::monitor
