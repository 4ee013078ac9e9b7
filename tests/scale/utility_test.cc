#include "scale/utility.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

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
  for (const auto* text : {"", "linear", "linear:", "linear:1", "linear:0@5", "linear:1@2+3@4", "steps:1@2+3@1",
                           "cubic:1@2", "steps:x@1", "steps:nan@1", "steps:1@inf"})
    EXPECT_THROW(Utility::parse(text), Failure) << text;
}

std::string problem_of(const std::string& text, Code code) {
  try {
    Utility::parse(text);
  } catch (const Failure& problem) {
    EXPECT_EQ(problem.code(), code);
    return problem.what();
  }
  return "none";
}

TEST(Utility, IsAFormulaOfTheUsers) {
  auto utility = Utility::parse("100*exp(-t/600)");
  EXPECT_DOUBLE_EQ(utility.at(600), 100 * std::exp(-1));
  utility.expect(5);  // that is only about steps
  EXPECT_DOUBLE_EQ(utility.at(600), 100 * std::exp(-1));
  EXPECT_TRUE(utility.any_shape());
  EXPECT_FALSE(Utility::linear(1, 1).any_shape());
  EXPECT_EQ(problem_of("100*exp-t", Code::invalid), "utility 100*exp-t: column 8: '(' is expected, not '-'");
}

TEST(Utility, IsAlwaysANumber) {
  EXPECT_LT(Utility::parse("log(600-t)").at(601), -1e200);  // not a number: worth less than anything
  EXPECT_GT(Utility::parse("1/(t-t)").at(5), 1e200);
  EXPECT_LT(Utility::parse("-1/(t-t)").at(5), -1e200);
  auto worst = Utility::parse("log(0-t)"), best = Utility::parse("1/(t-t)");
  EXPECT_TRUE(std::isfinite(best.at(1) - worst.at(1)));
  Remaining job{.batches = 100, .batch = 10, .elapsed = 0, .price = 0.1};
  Point two{2, 10, 1, 10}, four{4, 20, 1, 10};
  EXPECT_FALSE(worth_its_cost(worst, job, two, four));                         // both are worth as little
  EXPECT_TRUE(worth_its_cost(Utility::parse("sqrt(60-t)"), job, two, four));   // 100 s make no sense, 50 do
  EXPECT_FALSE(worth_its_cost(Utility::parse("sqrt(t-60)"), job, two, four));  // and the other way round
  EXPECT_TRUE(std::isfinite(Utility::parse("steps:1@2+1@3").at(INFINITY)));
}

TEST(Utility, IsLoadedFromASharedObject) {
  const std::string path = PLIANT_UTILITY_OBJECT;
  auto relative = std::filesystem::relative(path, std::filesystem::current_path()).string();
  for (const auto& name : {path, relative, "./" + relative}) {
    auto utility = Utility::parse(name);
    EXPECT_DOUBLE_EQ(utility.at(599), 100) << name;
    EXPECT_DOUBLE_EQ(utility.at(660), 90) << name;
    EXPECT_TRUE(utility.any_shape());
  }
}

TEST(Utility, ASharedObjectThatIsNoneIsNamed) {
  EXPECT_NE(problem_of("./nowhere.so", Code::not_found).find("utility ./nowhere.so: "), std::string::npos);
  EXPECT_NE(problem_of("/nowhere", Code::not_found).find("utility /nowhere: "), std::string::npos);
  EXPECT_NE(problem_of(PLIANT_EMPTY_OBJECT, Code::invalid).find("it has no pliant_utility"), std::string::npos);
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
