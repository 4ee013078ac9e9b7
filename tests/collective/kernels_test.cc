#include "collective/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace pliant::collective {
namespace {

std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> all{CpuLevel::baseline};
  if (cpu_level() >= CpuLevel::avx2) all.push_back(CpuLevel::avx2);
  if (cpu_level() >= CpuLevel::avx512) all.push_back(CpuLevel::avx512);
  return all;
}

TEST(Kernels, SumInRankOrderToTheBitForAnyNumberOfContributors) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (auto level : levels())
    for (std::size_t ranks : {1UL, 2UL, 3UL, 8UL, 9UL, 17UL, 33UL})
      for (std::size_t count : {1UL, 15UL, 16UL, 1000UL, 5003UL}) {
        std::vector<std::vector<float>> inputs(ranks, std::vector<float>(count));
        std::vector<Contribution> in;
        for (auto& input : inputs) {
          for (float& x : input) x = normal(random);
          in.push_back({input.data(), 1});
        }
        std::vector<float> out(count + 16);
        Recipe recipe{Dtype::f32, Op::mean, 1.0 / static_cast<double>(ranks), true, count % 2 == 0, true};
        auto squares = reduce(recipe, out.data(), in, count, level).squares;
        double want_squares = 0;
        for (std::size_t i = 0; i < count; ++i) {
          float want = inputs[0][i];
          for (std::size_t k = 1; k < ranks; ++k) want += inputs[k][i];
          want *= static_cast<float>(1.0 / static_cast<double>(ranks));
          ASSERT_EQ(out[i], want) << "level " << name_of(level) << " ranks " << ranks << " at " << i;
          want_squares += static_cast<double>(want) * want;
        }
        ASSERT_NEAR(squares, want_squares, want_squares * 1e-4 + 1e-9);
        for (std::size_t i = count; i < out.size(); ++i) ASSERT_EQ(out[i], 0);  // nothing behind the end
      }
}

double sum_of_squares(const auto& values) {
  double sum = 0;
  for (auto value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

TEST(Kernels, MeasuringChangesNoBitOfTheResult) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (auto level : levels())
    for (std::size_t ranks : {1UL, 2UL, 8UL, 9UL, 17UL})
      for (std::size_t count : {1UL, 17UL, 1024UL, 5003UL})
        for (bool equal : {true, false}) {
          std::vector<std::vector<float>> inputs(ranks, std::vector<float>(count));
          std::vector<double> weights, shares(ranks);
          for (std::size_t k = 0; k < ranks; ++k) {
            for (float& x : inputs[k]) x = normal(random);
            weights.push_back(equal ? 3 : static_cast<double>(k + 1));
          }
          auto recipe = recipe_for(Dtype::f32, Op::weighted_mean, weights, shares);
          std::vector<Contribution> in;
          double want = 0;
          for (std::size_t k = 0; k < ranks; ++k) {
            in.push_back({inputs[k].data(), shares[k], weights[k]});
            want += weights[k] * sum_of_squares(inputs[k]);
          }
          std::vector<float> plain(count), measured(count);
          auto nothing = reduce(recipe, plain.data(), in, count, level);
          EXPECT_EQ(nothing.squares, 0);
          EXPECT_EQ(nothing.spread, 0);
          recipe.squares = recipe.spread = true;
          auto seen = reduce(recipe, measured.data(), in, count, level);
          ASSERT_EQ(plain, measured);
          ASSERT_NEAR(seen.spread, want, want * 1e-5);
          ASSERT_NEAR(seen.squares, sum_of_squares(plain), sum_of_squares(plain) * 1e-5 + 1e-12);
        }
}

TEST(Kernels, ContributionsAreMeasuredInAnyTypeAndInPlace) {
  for (auto level : levels()) {
    std::vector<double> a(100, 3), b(100, 4);
    Recipe recipe{.dtype = Dtype::f64, .op = Op::mean, .factor = 0.5, .squares = true, .spread = true};
    std::vector<Contribution> in{{a.data(), 1, 1}, {b.data(), 1, 2}};
    auto seen = reduce(recipe, a.data(), in, 100, level);  // the result replaces a contribution
    EXPECT_DOUBLE_EQ(seen.spread, 100 * (9 + 2 * 16));
    EXPECT_DOUBLE_EQ(seen.squares, 100 * 3.5 * 3.5);
  }
}

TEST(Kernels, SquaresThatAFloatCannotHoldAreMeasured) {
  for (auto level : levels()) {
    std::vector<float> a(1024, 1e25F), out(1024);
    Recipe recipe{.dtype = Dtype::f32, .op = Op::mean, .squares = true, .spread = true};
    std::vector<Contribution> in{{a.data(), 1, 1}};
    auto seen = reduce(recipe, out.data(), in, 1024, level);
    EXPECT_NEAR(seen.spread / 1024e50, 1, 1e-5);
    EXPECT_NEAR(seen.squares / 1024e50, 1, 1e-5);
  }
}

TEST(Kernels, TheInnerProductWithWhatWasKeptBefore) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (auto level : levels())
    for (std::size_t count : {1UL, 16UL, 1000UL, 5003UL}) {
      std::vector<float> kept(count), now(count);
      double want = 0;
      for (std::size_t i = 0; i < count; ++i) {
        kept[i] = normal(random);
        now[i] = normal(random);
        want += static_cast<double>(kept[i]) * now[i];
      }
      EXPECT_NEAR(product_and_keep(Dtype::f32, kept.data(), now.data(), count, level), want, 1e-3);
      EXPECT_EQ(kept, now);
    }
}

TEST(Kernels, SharesMakeAWeightedMean) {
  for (auto level : levels()) {
    std::vector<double> weights{1, 3, 4};
    std::vector<double> shares(3);
    auto recipe = recipe_for(Dtype::f32, Op::weighted_mean, weights, shares);
    EXPECT_FALSE(recipe.equal_shares);
    std::vector<float> a(100, 8), b(100, 16), c(100, 4), out(100);
    std::vector<Contribution> in{{a.data(), shares[0]}, {b.data(), shares[1]}, {c.data(), shares[2]}};
    reduce(recipe, out.data(), in, 100, level);
    for (float x : out) ASSERT_FLOAT_EQ(x, 9);
  }
}

TEST(Kernels, EqualWeightsAreAPlainMean) {
  std::vector<double> weights{64, 64};
  std::vector<double> shares(2);
  auto recipe = recipe_for(Dtype::f32, Op::weighted_mean, weights, shares);
  EXPECT_TRUE(recipe.equal_shares);
  EXPECT_EQ(recipe.factor, 0.5);
}

TEST(Kernels, NonFiniteElementsShowInTheSquaresAndLargeOnesDoNotOverflow) {
  for (auto level : levels()) {
    std::vector<float> a(2000, 1e25F), out(2000);
    std::vector<Contribution> in{{a.data(), 1}};
    Recipe recipe{Dtype::f32, Op::sum, 1, true, false, true};
    EXPECT_NEAR(reduce(recipe, out.data(), in, 2000, level).squares, 2000 * 1e50, 1e48);
    a[1234] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(std::isfinite(reduce(recipe, out.data(), in, 2000, level).squares));
    a[1234] = std::nanf("");
    EXPECT_FALSE(std::isfinite(reduce(recipe, out.data(), in, 2000, level).squares));
  }
}

TEST(Kernels, HalfRoundsToNearestEvenOverItsWholeRange) {
  // Adding zero must give back every finite value, and halfway cases go to the even neighbour.
  std::vector<Half> all(65536), zero(65536), out(65536);
  for (int i = 0; i < 65536; ++i) all[i].bits = static_cast<std::uint16_t>(i);
  std::vector<Contribution> in{{all.data(), 1}, {zero.data(), 1}};
  for (auto level : levels()) {
    reduce({Dtype::f16, Op::sum, 1, true}, out.data(), in, 65536, level);
    for (int i = 0; i < 65536; ++i) {
      bool nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff);
      if (nan || i == 0x8000) continue;  // -0 + 0 is +0
      ASSERT_EQ(out[i].bits, i) << name_of(level);
    }
  }
  Half one{0x3c00}, tiny{0x1000}, sum{};  // 1 + 2^-11: halfway between 1 and its neighbour, the even one is 1
  std::vector<Contribution> two{{&one, 1}, {&tiny, 1}};
  reduce({Dtype::f16, Op::sum, 1, true}, &sum, two, 1);
  EXPECT_EQ(sum.bits, 0x3c00);
}

TEST(Kernels, BFloat16RoundsToNearestEven) {
  BFloat16 one{0x3f80}, half_step{0x3b80}, sum{};  // 1 + 2^-8: halfway
  std::vector<Contribution> in{{&one, 1}, {&half_step, 1}};
  reduce({Dtype::bf16, Op::sum, 1, true}, &sum, in, 1);
  EXPECT_EQ(sum.bits, 0x3f80);
  BFloat16 odd{0x3f81};
  in[0].data = &odd;
  reduce({Dtype::bf16, Op::sum, 1, true}, &sum, in, 1);
  EXPECT_EQ(sum.bits, 0x3f82);
}

TEST(Kernels, NobodyContributingGivesZeros) {
  std::vector<float> out(10, 7);
  reduce({Dtype::f32, Op::weighted_mean}, out.data(), {}, 10);
  for (float x : out) EXPECT_EQ(x, 0);
}

TEST(Kernels, StreamingCopyIsACopyAtAnyAlignment) {
  std::vector<char> from(20'000), to(20'000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 31);
  for (auto level : levels())
    for (std::size_t shift : {0UL, 1UL, 17UL, 64UL}) {
      std::fill(to.begin(), to.end(), 0);
      copy(to.data() + shift, from.data() + 3, 15'000, true, level);
      ASSERT_EQ(std::memcmp(to.data() + shift, from.data() + 3, 15'000), 0);
      ASSERT_EQ(to[shift + 15'000], 0);
    }
}

}  // namespace
}  // namespace pliant::collective
