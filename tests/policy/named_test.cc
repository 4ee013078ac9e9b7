#include "policy/named.h"

#include <gtest/gtest.h>

#include <string>

namespace pliant {
namespace {

StepReport epoch_of(std::uint64_t epoch, std::optional<double> noise, int size = 2, std::uint64_t local = 32) {
  StepReport report;
  report.epoch = epoch;
  report.ends_epoch = true;
  report.noise_scale = noise;
  report.size = size;
  report.local_batch = local;
  report.global_batch = local * static_cast<std::uint64_t>(size);
  return report;
}

StepReport step_of(std::uint64_t step, std::optional<double> noise = {}, int size = 2) {
  auto report = epoch_of(0, noise, size);
  report.step = step;
  return report;
}

std::string problem_of(const std::string& description) {
  try {
    make_policy(description);
  } catch (const Failure& problem) {
    return problem.what();
  }
  return "";
}

TEST(Named, MistakesAreOneLine) {
  EXPECT_NE(problem_of("nonsense").find("there is no policy 'nonsense'"), std::string::npos);
  EXPECT_NE(problem_of("nonsense").find("follow-noise"), std::string::npos);  // and what there is
  EXPECT_EQ(problem_of("gns:most=3"), "policy gns: there is no option 'most'");
  EXPECT_EQ(problem_of("gns:max=0"), "policy gns: max: '0' is not a number from 1 on");
  EXPECT_EQ(problem_of("gns:max=1,max=2"), "policy gns: max is given twice");
  EXPECT_EQ(problem_of("gns:by=luck"), "policy gns: by: 'luck' is none of batch, workers");
  EXPECT_EQ(problem_of("schedule"), "policy schedule: a schedule needs stages, like 2x100,4x200");
  EXPECT_EQ(problem_of("schedule:2y100"), "policy schedule: '2y100' is not like 2x100");
  EXPECT_EQ(problem_of("grow:factor=2"), "policy grow: it needs epochs, like at=30,at=60");
  EXPECT_EQ(problem_of("follow-noise:min=9,max=2"), "policy follow-noise: min is more than max");
  EXPECT_NE(problem_of("./nowhere.so").find("nowhere.so"), std::string::npos);
}

TEST(NoiseScalePolicy, MoreNoiseThanInTheEpochBeforeIsTwiceTheBatch) {
  auto policy = make_policy("gns:max=100");
  EXPECT_TRUE(policy->after_epoch(epoch_of(0, 500)).empty());  // nothing to compare with
  EXPECT_EQ(policy->after_epoch(epoch_of(1, 600)).local_batch, 64U);
  EXPECT_TRUE(policy->after_epoch(epoch_of(2, 550, 2, 64)).empty());
  EXPECT_EQ(policy->after_epoch(epoch_of(3, 700, 2, 64)).local_batch, 100U);
  EXPECT_TRUE(policy->after_epoch(epoch_of(4, 800, 2, 100)).empty());  // no more
  EXPECT_TRUE(policy->after_epoch(epoch_of(5, {}, 2, 100)).empty());
}

TEST(NoiseScalePolicy, OrTwiceTheWorkers) {
  auto policy = make_policy("gns:by=workers,max=5");
  policy->after_epoch(epoch_of(0, 500));
  EXPECT_EQ(policy->after_epoch(epoch_of(1, 600)).workers, 4);
  EXPECT_EQ(policy->after_epoch(epoch_of(2, 700, 4)).workers, 5);
  EXPECT_TRUE(policy->after_epoch(epoch_of(3, 800, 5)).empty());
}

TEST(NoiseScalePolicy, MovesToAnotherWorker) {
  auto here = make_policy("gns"), there = make_policy("gns");
  here->after_epoch(epoch_of(0, 500.25));
  there->load(here->save());
  EXPECT_TRUE(there->after_epoch(epoch_of(1, 500.25)).empty());
  EXPECT_EQ(there->after_epoch(epoch_of(2, 500.5)).local_batch, 64U);
}

TEST(SchedulePolicy, SaysEachStageOnceAndInTime) {
  auto policy = make_policy("schedule:2x100,4x200,8x1");
  EXPECT_EQ(policy->before_train(step_of(0)).workers, 2);
  for (std::uint64_t step = 0; step < 98; ++step) EXPECT_TRUE(policy->after_step(step_of(step)).empty()) << step;
  EXPECT_EQ(policy->after_step(step_of(98)).workers, 4);  // said with step 99, holds from step 100 on
  for (std::uint64_t step = 99; step < 298; ++step) EXPECT_TRUE(policy->after_step(step_of(step)).empty()) << step;
  EXPECT_EQ(policy->after_step(step_of(298)).workers, 8);
  for (std::uint64_t step = 299; step < 400; ++step) EXPECT_TRUE(policy->after_step(step_of(step)).empty()) << step;
}

TEST(SchedulePolicy, AlsoOfBatchesAndByEpochs) {
  auto policy = make_policy("schedule:64x2,768x1,of=batch,by=epoch");
  EXPECT_EQ(policy->before_train(step_of(0)).global_batch, 64U);
  EXPECT_TRUE(policy->after_step(step_of(98)).empty());
  EXPECT_TRUE(policy->after_epoch(epoch_of(0, {})).empty());
  EXPECT_EQ(policy->after_epoch(epoch_of(1, {})).global_batch, 768U);
}

TEST(GrowInsteadOfDecay, TheRateFallsOnlyByWhatTheBatchCannotDo) {
  auto policy = make_policy("grow:at=2,at=4,at=6,factor=5,max=800");
  EXPECT_TRUE(policy->after_epoch(epoch_of(0, {})).empty());
  auto first = policy->after_epoch(epoch_of(1, {}));  // 64 -> 320
  EXPECT_EQ(first.global_batch, 320U);
  EXPECT_FALSE(first.rate_factor);
  auto second = policy->after_epoch(epoch_of(3, {}, 2, 160));  // 320 -> 1600, of which 800 are allowed
  EXPECT_EQ(second.global_batch, 800U);
  EXPECT_DOUBLE_EQ(*second.rate_factor, 0.5);
  auto third = policy->after_epoch(epoch_of(5, {}, 2, 400));
  EXPECT_FALSE(third.global_batch);
  EXPECT_DOUBLE_EQ(*third.rate_factor, 0.1);
}

TEST(FollowNoise, KeepsTheBatchNearTheNoiseScale) {
  auto policy = make_policy("follow-noise:min=2,max=8,every=10");
  EXPECT_TRUE(policy->after_step(step_of(8, 160)).empty());
  EXPECT_EQ(policy->after_step(step_of(9, 160)).workers, 5);  // of 32 each
  EXPECT_EQ(policy->after_step(step_of(19, 10'000)).workers, 8);
  EXPECT_EQ(policy->after_step(step_of(29, 1, 3)).workers, 2);
  EXPECT_TRUE(policy->after_step(step_of(39, 64)).empty());  // as it is
  EXPECT_TRUE(policy->after_step(step_of(49)).empty());
}

TEST(CriticalBatch, SaysWhatABatchIsWorth) {
  auto policy = make_policy("critical-batch");
  EXPECT_EQ(policy->after_epoch(epoch_of(3, 64)).text,
            "epoch 3: critical batch about 64; at 64 a step makes 50 % of the progress of a noiseless one");
  EXPECT_EQ(policy->after_epoch(epoch_of(3, {})).text, "epoch 3: the noise scale is not known yet");
}

}  // namespace
}  // namespace pliant
