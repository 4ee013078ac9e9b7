#include "policy/stragglers.h"

#include <gtest/gtest.h>

#include "base/result.h"

namespace pliant::policy {
namespace {

/// Steps of a job whose workers have these speeds.
class Job {
 public:
  explicit Job(const std::string& options = "") : policy_(Options(options)) {}

  Action step(const std::map<std::uint64_t, double>& speeds) {
    StepReport report;
    report.step = step_++;
    for (const auto& [worker, speed] : speeds) report.speeds.push_back({worker, speed});
    return policy_.after_step(report);
  }
  /// The first wish within so many steps.
  Action steps(int count, const std::map<std::uint64_t, double>& speeds) {
    for (int i = 0; i < count; ++i)
      if (auto action = step(speeds); !action.empty()) return action;
    return {};
  }
  std::uint64_t now() const { return step_; }
  StragglerPolicy& policy() { return policy_; }

 private:
  StragglerPolicy policy_;
  std::uint64_t step_ = 0;
};

TEST(StragglerPolicy, AsksForAnotherWorkerOnce) {
  Job job;
  EXPECT_TRUE(job.steps(50, {{0, 100}, {1, 100}, {2, 100}}).empty());
  auto before = job.now();
  auto action = job.steps(50, {{0, 100}, {1, 50}, {2, 100}});
  EXPECT_EQ(action.replace, 1U);
  EXPECT_LE(job.now() - before, 6U) << "0.5 + 0.5 * 0.9^n is below 0.8 after five";
  EXPECT_NE(action.text.find("worker 1 has "), std::string::npos);
  EXPECT_TRUE(job.steps(90, {{0, 100}, {1, 50}, {2, 100}}).empty()) << "it takes time";
  EXPECT_TRUE(job.steps(90, {{0, 100}, {2, 100}, {3, 100}}).empty()) << "that was it";
}

TEST(StragglerPolicy, AsksAgainEachTimeAfterTwiceAsLong) {
  Job job;
  std::vector<std::uint64_t> asked;
  for (int i = 0; i < 800; ++i)
    if (job.step({{0, 100}, {1, 100}, {7, 20}}).replace) asked.push_back(job.now());
  ASSERT_EQ(asked.size(), 4U);
  EXPECT_EQ(asked[1] - asked[0], 100U);
  EXPECT_EQ(asked[2] - asked[1], 200U);
  EXPECT_EQ(asked[3] - asked[2], 400U);
}

TEST(StragglerPolicy, OneAfterTheOtherTheSlowestFirst) {
  Job job;
  EXPECT_EQ(job.steps(50, {{0, 100}, {1, 50}, {2, 100}, {3, 20}, {4, 100}}).replace, 3U);
  EXPECT_EQ(job.steps(50, {{0, 100}, {1, 50}, {2, 100}, {4, 100}, {5, 100}}).replace, 1U);
}

TEST(StragglerPolicy, SharesByWhatEachCanDo) {
  Job job("remedy=share");
  std::map<std::uint64_t, double> speeds = {{0, 100}, {1, 50}, {2, 100}, {3, 102}};
  auto action = job.steps(20, speeds);
  EXPECT_FALSE(action.replace.has_value());
  EXPECT_NEAR(action.shares.at(1), 0.5, 0.06);
  EXPECT_EQ(action.shares.at(0), 1);
  EXPECT_EQ(action.shares.at(3), 1) << "a little is not worth it";
  EXPECT_TRUE(job.steps(200, speeds).empty()) << "and stays so";
  Action last;
  for (int i = 0; i < 200; ++i) last.also(job.step({{0, 100}, {1, 100}, {2, 100}, {3, 100}}));
  EXPECT_EQ(last.shares.at(1), 1) << "until it is as fast as the others again";
}

TEST(StragglerPolicy, BothIsBoth) {
  Job job("remedy=both");
  auto action = job.steps(20, {{0, 100}, {1, 50}, {2, 100}});
  EXPECT_TRUE(action.replace.has_value());
  EXPECT_FALSE(action.shares.empty());
}

TEST(StragglerPolicy, MovesToNewcomersAsItIs) {
  Job here("remedy=both"), there("remedy=both");
  std::map<std::uint64_t, double> speeds = {{0, 100}, {1, 100.0 / 3}, {2, 97}};
  for (int i = 0; i < 17; ++i) {
    here.step(speeds);
    there.step({{0, 1}, {5, 100}});
  }
  there.policy().load(here.policy().save());
  EXPECT_EQ(there.policy().save(), here.policy().save());
}

TEST(StragglerPolicy, RefusesWhatMakesNoSense) {
  for (const char* wrong : {"least=1.5", "least=0", "memory=1", "remedy=pray", "more=1"})
    EXPECT_THROW(Job job(wrong), Failure) << wrong;
}

}  // namespace
}  // namespace pliant::policy
