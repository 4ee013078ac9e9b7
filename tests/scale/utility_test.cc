#include "scale/utility.h"

#include <gtest/gtest.h>

#include "base/result.h"
#include "scale/condition.h"

namespace pliant::scale {
namespace {

TEST(Utility, LinearFallsThroughNothing) {
  auto utility = Utility::linear(100, 50);
  EXPECT_DOUBLE_EQ(utility.at(0), 100);
  EXPECT_DOUBLE_EQ(utility.at(25), 50);
  EXPECT_DOUBLE_EQ(utility.at(100), -100);
}

TEST(Utility, StepsAreStraightLinesAndGoOnWithTheLastSlope) {
  auto utility = Utility::steps({{100, 10}, {40, 20}});
  EXPECT_DOUBLE_EQ(utility.at(0), 100);
  EXPECT_DOUBLE_EQ(utility.at(5), 100);  // what is worth 100 until 10 is so from the start
  EXPECT_DOUBLE_EQ(utility.at(15), 70);
  EXPECT_DOUBLE_EQ(utility.at(30), -20);
  utility.expect(60);  // and after that nothing
  EXPECT_DOUBLE_EQ(utility.at(40), 20);
  EXPECT_DOUBLE_EQ(utility.at(60), 0);
}

TEST(Utility, IsReadFromText) {
  EXPECT_DOUBLE_EQ(Utility::parse("linear:100@50").at(25), 50);
  EXPECT_DOUBLE_EQ(Utility::parse("steps:100@10+40@20").at(15), 70);
  for (const auto* text :
       {"", "linear", "linear:", "linear:1", "linear:0@5", "linear:1@2+3@4", "steps:1@2+3@1", "cubic:1@2", "steps:x@1"})
    EXPECT_THROW(Utility::parse(text), Failure) << text;
}

TEST(Condition, MoreWorkersAreWorthItIfTheirValueIsMoreThanTheirCost) {
  auto utility = Utility::linear(1000, 1000);  // a second is worth 1
  Remaining job{.batches = 100, .batch = 10, .elapsed = 0, .price = 0.1};
  Point two{2, 10, 1, 10}, four{4, 20, 1, 10}, eight{8, 21, 1, 10};
  EXPECT_DOUBLE_EQ(end_of(job, two), 100);
  EXPECT_DOUBLE_EQ(cost_of(job, two), 20);
  EXPECT_TRUE(worth_its_cost(utility, job, two, four));     // 50 seconds for nothing
  EXPECT_FALSE(worth_its_cost(utility, job, four, eight));  // 2.4 seconds for 18
}

}  // namespace
}  // namespace pliant::scale
