#include "collective/contributions.h"

#include <gtest/gtest.h>

#include <array>

namespace pliant::collective {
namespace {

const std::byte* bytes_of(const std::array<float, 4>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

TEST(Contributions, AreReducedWithTheirSharesFromAPlaceOn) {
  std::array<float, 4> one{1, 2, 3, 4}, other{10, 20, 30, 40}, out{};
  Contributions contributions;
  contributions.add(bytes_of(one), 1, 1);
  contributions.add(bytes_of(other), 3, 3);
  auto recipe = recipe_for(Dtype::f32, Op::weighted_mean, contributions.weights(), contributions.shares());
  contributions.reduce_at(recipe, 2 * sizeof(float), reinterpret_cast<std::byte*>(out.data()), 2);
  EXPECT_FLOAT_EQ(out[0], (3 + 3 * 30) / 4.F);
  EXPECT_FLOAT_EQ(out[1], (4 + 3 * 40) / 4.F);
  EXPECT_EQ(out[2], 0);
}

TEST(Contributions, NothingOfTheReductionBeforeIsLeft) {
  std::array<float, 4> one{1, 2, 3, 4}, other{10, 20, 30, 40}, out{};
  Contributions contributions;
  for (int i = 0; i < 3; ++i) contributions.add(bytes_of(one), 5, 0);
  (void)contributions.shares();
  contributions.clear();
  contributions.add(bytes_of(other), 2, 0);
  auto recipe = recipe_for(Dtype::f32, Op::sum, contributions.weights(), contributions.shares());
  contributions.reduce_at(recipe, 0, reinterpret_cast<std::byte*>(out.data()), 4);
  EXPECT_EQ(out, other);
}

}  // namespace
}  // namespace pliant::collective
