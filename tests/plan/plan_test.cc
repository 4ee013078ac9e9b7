#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "plan/simulation.h"
#include "plan/trace.h"

namespace pliant::plan {
namespace {

Result<Trace> read(const std::string& text) {
  std::istringstream in(text);
  return Trace::read(in, "spot.csv");
}

TEST(Trace, HoldsUntilTheNextOffer) {
  auto trace = read("seconds,capacity,price\n0,4,0.5\n# a dip\n60, 2, 0.75\r\n120,8,0.5\n").or_throw();
  EXPECT_EQ(trace.at(59.9).capacity, 4);
  EXPECT_EQ(trace.at(60).capacity, 2);
  EXPECT_DOUBLE_EQ(trace.at(1e9).price, 0.5);
  EXPECT_DOUBLE_EQ(trace.next_after(60), 120);
  EXPECT_TRUE(std::isinf(trace.next_after(120)));
}

TEST(Trace, WhatMakesNoSenseIsNamedWithItsLine) {
  for (auto [text, what] : {std::pair("", "no offers"),
                            {"0,4,0.5\n0,3,0.5\n", "spot.csv:2: times must ascend"},
                            {"0,4,-1\n", "spot.csv:1: a price"},
                            {"0,4\n", "is not seconds,capacity,price"},
                            {"0,4,0.5,9\n", "is not seconds,capacity,price"},
                            {"0,-1,0.5\n", "a capacity"},
                            {"0,1.5,0.5\n", "a capacity"}}) {
    auto trace = read(text);
    ASSERT_FALSE(trace.ok()) << text;
    EXPECT_NE(trace.error().message.find(what), std::string::npos) << trace.error().message;
  }
}

Job usual() {
  Job job;
  job.step = {.alpha_g = 0, .beta_g = 0.001};
  job.samples = 100'000;
  job.global_batch = 100;
  job.most = 16;
  return job;
}

TEST(Simulation, AFixedSizeTakesWhatTheModelSays) {
  auto out = simulate(usual(), Trace(16, 3.6), 4, {});
  EXPECT_TRUE(out.finished);
  EXPECT_EQ(out.steps, 1000U);
  EXPECT_NEAR(out.seconds, 25, 1e-9);
  EXPECT_NEAR(out.worker_seconds, 100, 1e-9);
  EXPECT_NEAR(out.money, 0.1, 1e-9);
}

TEST(Simulation, CapacityThatIsTakenAwayIsMissed) {
  auto trace = read("0,4,1\n10,1,1\n20,4,1\n").or_throw();
  auto out = simulate(usual(), trace, 4, {});
  // 10 s at 4, 12 at 1 (2 of them until the others have started), the rest at 4.
  EXPECT_NEAR(out.seconds, 10 + 12 + (100 - 40 - 12) / 4.0, 0.3);
  EXPECT_EQ(out.changes.size(), 3U);
}

TEST(Simulation, NobodyIsThereAndThenSomebody) {
  auto trace = read("0,0,1\n100,2,1\n").or_throw();
  auto out = simulate(usual(), trace, 2, {});
  EXPECT_TRUE(out.finished);
  EXPECT_NEAR(out.seconds, 102 + 50, 1e-6);
  EXPECT_FALSE(simulate(usual(), Trace(0, 1), 2, {}).finished);
}

/// Without policies, steps that are equal are not gone through one by one; that changes nothing.
TEST(Simulation, WhoeverLooksAtEveryStepSeesTheSame) {
  struct Onlooker final : Policy {
  } onlooker;
  auto trace = read("0,4,1\n10.013,1,2\n20.017,900,1\n30.011,0,1\n41.503,3,1\n90.007,5,0.5\n").or_throw();
  for (int workers : {1, 3, 4, 700}) {
    auto job = usual();
    job.samples = 1e6 + 17;
    job.start_seconds = 2.0071;  // nothing happens just when a step ends: that rounding would decide
    job.most = 1000;
    auto quick = simulate(job, trace, workers, {});
    auto slow = simulate(job, trace, workers, {&onlooker});
    EXPECT_TRUE(quick.finished);
    EXPECT_EQ(quick.steps, slow.steps) << workers;
    EXPECT_NEAR(quick.seconds, slow.seconds, 1e-6) << workers;
    EXPECT_NEAR(quick.worker_seconds, slow.worker_seconds, 1e-5) << workers;
    EXPECT_NEAR(quick.money, slow.money, 1e-6) << workers;
    ASSERT_EQ(quick.changes.size(), slow.changes.size()) << workers;
    for (std::size_t i = 0; i < quick.changes.size(); ++i) {
      EXPECT_EQ(quick.changes[i].workers, slow.changes[i].workers) << workers;
      EXPECT_NEAR(quick.changes[i].time, slow.changes[i].time, 1e-6) << workers;
    }
  }
}

/// A day of a cloud that changes every minute, for a job of a thousand. Gone through again, it is the same.
TEST(Simulation, AThousandWorkersFollowATraceForADay) {
  std::string offers;
  for (int minute = 0; minute < 24 * 60; ++minute)
    offers += fmt::format("{},{},{}\n", 60 * minute, 500 + minute * 7919 % 501, 0.2 + minute % 10 * 0.05);
  auto trace = read(offers).or_throw();
  Job job;
  job.step = {.alpha_g = 0.05, .beta_g = 0.01, .alpha = 0.02, .beta = 0.0001, .gamma = 2};
  job.samples = 5.4e9;
  job.local_batch = 32;
  job.most = 1000;
  std::vector<double> seconds;
  for (int turn = 0; turn < 2; ++turn) {
    auto policy = make_policy("autoscale:max=1000");
    auto out = simulate(job, trace, 1, {policy.get()});
    EXPECT_TRUE(out.finished);
    int largest = 0;
    for (const auto& change : out.changes) {
      EXPECT_LE(change.workers, 1000);
      largest = std::max(largest, change.workers);
    }
    EXPECT_GT(largest, 900);
    seconds.push_back(out.seconds);
  }
  EXPECT_EQ(seconds[0], seconds[1]);
  EXPECT_NEAR(seconds[0], 24 * 3600, 6 * 3600);
}

TEST(Simulation, PoliciesFindTheKnee) {
  auto job = usual();
  job.global_batch = 0;
  job.local_batch = 100;
  job.samples = 3e6;
  job.step = {
      .alpha_g = 0, .beta_g = 0.001, .alpha = 0.01, .beta = 0.1, .gamma = 10};  // more than 3 wait for each other
  auto policy = make_policy("autoscale:max=16");
  auto out = simulate(job, Trace(16, 1), 1, {policy.get()});
  EXPECT_TRUE(out.finished);
  EXPECT_NEAR(out.changes.back().workers, 3, 1);
  auto largest = simulate(job, Trace(16, 1), 16, {});
  EXPECT_LT(out.worker_seconds, 0.5 * largest.worker_seconds);
}

}  // namespace
}  // namespace pliant::plan
