#include <gtest/gtest.h>
#include <pliant/pliant.h>

#include <cmath>
#include <set>

namespace pliant {
namespace {

TEST(RandomStream, DependsOnEveryPartOfItsKeyAndOnNothingElse) {
  EXPECT_EQ(RandomStream(1, 2, 3, 4)(), RandomStream(1, 2, 3, 4)());
  std::set<std::uint64_t> firsts;
  for (std::uint64_t part = 0; part < 4; ++part)
    for (std::uint64_t value = 0; value < 100; ++value) {
      std::uint64_t key[4] = {1000, 1000, 1000, 1000};
      key[part] = value;
      firsts.insert(RandomStream(key[0], key[1], key[2], key[3])());
    }
  EXPECT_EQ(firsts.size(), 400U);
}

TEST(RandomStream, IsUniformAndNormal) {
  RandomStream random(7);
  double sum = 0, squares = 0, normal = 0, normal_squares = 0;
  constexpr int kDraws = 200'000;
  std::vector<int> buckets(10);
  for (int i = 0; i < kDraws; ++i) {
    double u = random.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
    double n = random.normal();
    normal += n;
    normal_squares += n * n;
    ++buckets[random.below(10)];
  }
  // Five standard errors around the expectation.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1 / 12.0 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1 / 3.0, 0.005);
  EXPECT_NEAR(normal / kDraws, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(normal_squares / kDraws, 1, 0.02);
  for (int count : buckets) EXPECT_NEAR(count, kDraws / 10, 5 * std::sqrt(kDraws * 0.09));
}

}  // namespace
}  // namespace pliant
