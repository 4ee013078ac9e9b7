// The step boundary with several workers as threads, each with a Core of its own.
#include "session/core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <numeric>

#include "session/workers.h"

namespace pliant::session {
namespace {

std::optional<Step> next(Core& core, bool first) {
  if (!first) core.end_step();
  return core.begin_step();
}

TEST(Core, EverySampleOncePerEpochOnAnyNumberOfWorkers) {
  for (int workers : {1, 2, 3, 5}) {
    std::mutex mutex;
    std::map<std::uint64_t, std::vector<int>> used;  // by epoch
    run_workers(workers, [&](Core& core) {
      core.set_batch({7, 0});
      core.attach_sampler(103, true);
      core.start({.epochs = 3});
      for (auto step = next(core, true); step; step = next(core, false)) {
        auto foreseen = core.next_lease();
        auto lease = core.take_lease();
        EXPECT_EQ(core.contribution(), static_cast<double>(lease.size()));
        std::lock_guard lock(mutex);
        auto& epoch = used[lease.epoch];
        epoch.resize(103);
        for (auto sample : lease) ++epoch.at(sample);
        (void)foreseen;
      }
    });
    ASSERT_EQ(used.size(), 3U);
    for (const auto& [epoch, times] : used)
      for (int count : times) ASSERT_EQ(count, 1) << "epoch " << epoch << " with " << workers;
  }
}

TEST(Core, PeekForeseesTheNextLease) {
  run_workers(2, [](Core& core) {
    core.set_batch({4, 0});
    core.attach_sampler(21, true);
    core.start({.epochs = 2});
    Lease foreseen;
    bool first = true;
    for (auto step = next(core, true); step; step = next(core, false)) {
      auto lease = core.take_lease();
      if (!first) {
        EXPECT_EQ(lease.samples, foreseen.samples);
      }
      first = false;
      foreseen = core.next_lease();
    }
    EXPECT_TRUE(foreseen.empty());  // behind the last epoch
  });
}

TEST(Core, AnEmptyLeaseContributesNothingAndHangsNobody) {
  run_workers(4, [](Core& core) {
    core.set_batch({0, 4});
    core.attach_sampler(3, false);  // three samples, four workers
    core.start({.epochs = 2});
    int steps = 0;
    for (auto step = next(core, true); step; step = next(core, false), ++steps) {
      EXPECT_TRUE(step->ends_epoch());
      auto lease = core.take_lease();
      EXPECT_EQ(lease.size(), core.rank() < 3 ? 1U : 0U);
      core.log("rank", core.rank() == 3 ? 1000 : core.rank());
    }
    EXPECT_EQ(steps, 2);
    EXPECT_DOUBLE_EQ(core.averages().at("rank"), 1);  // of ranks 0, 1 and 2
  });
}

TEST(Core, StateIsCopiedFromRankZeroBeforeTheFirstStep) {
  run_workers(3, [](Core& core) {
    std::vector<float> weights(300'001, static_cast<float>(core.rank() + 5));  // more than one block
    std::vector<double> more(17, core.rank());
    core.replicas().add("weights", state_of(std::span<float>(weights)));
    core.replicas().add("more", state_of(std::span<double>(more)));
    core.start({.steps = 1});
    for (float weight : weights) ASSERT_EQ(weight, 5);
    for (double value : more) ASSERT_EQ(value, 0);
    core.begin_step();
    core.end_step();
    EXPECT_EQ(core.digest(), core.replicas().digest());
  });
}

TEST(Core, DifferentModelsAreRefusedWithTheirSizes) {
  run_workers(2, [](Core& core) {
    std::vector<float> weights(core.rank() == 0 ? 100 : 200);
    core.replicas().add("weights", state_of(std::span<float>(weights)));
    try {
      core.start({.steps = 1});
      FAIL() << "they agreed";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), Code::mismatch);
      EXPECT_NE(std::string(failure.what()).find("rank 1"), std::string::npos) << failure.what();
    }
  });
}

TEST(Core, BuffersAreAveragedBySamplesAndCountersTakeTheMaximum) {
  class Buffers final : public State {
   public:
    std::vector<float> mean = std::vector<float>(10);
    std::int64_t batches = 0;
    std::vector<StateItem> items() override {
      return {{"mean", Dtype::f32, mean.data(), mean.size(), Role::average, nullptr},
              {"batches", Dtype::i64, &batches, 1, Role::counter, nullptr}};
    }
  };
  run_workers(3, [](Core& core) {
    auto buffers = std::make_shared<Buffers>();
    core.replicas().add("buffers", buffers);
    core.set_batch({0, 6});
    core.attach_sampler(4, false);  // parts of 2, 1 and 1
    core.start({.epochs = 1});
    core.begin_step();
    auto lease = core.take_lease();
    for (float& x : buffers->mean) x = static_cast<float>(4 * core.rank());
    buffers->batches = 10 + core.rank();
    core.end_step();
    for (float x : buffers->mean) EXPECT_FLOAT_EQ(x, (2 * 0 + 1 * 4 + 1 * 8) / 4.0F);
    EXPECT_EQ(buffers->batches, 12);
  });
}

TEST(Core, AReplicaThatDeviatesIsFoundWithin64StepsAndNamed) {
  run_workers(3, [](Core& core) {
    std::vector<float> weights(1000, 1);
    core.replicas().add("weights", state_of(std::span<float>(weights)));
    core.start({.steps = 200});
    try {
      for (auto step = next(core, true); step; step = next(core, false))
        if (step->index() == 30 && core.rank() == 1) weights[500] = 1.0000001F;
      FAIL() << "nobody noticed";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), Code::diverged);
      EXPECT_NE(std::string(failure.what()).find("rank 1 deviates"), std::string::npos) << failure.what();
      EXPECT_LE(core.step(), 30U + 65U);
    }
  });
}

TEST(Core, MistakesAreSaidAtOnce) {
  run_workers(1, [](Core& core) {
    EXPECT_THROW(core.start({}), Failure);
    EXPECT_THROW(core.start({.epochs = 1}), Failure);  // without a sampler
    EXPECT_THROW(core.set_batch({0, 0}), Failure);
    EXPECT_THROW(core.attach_sampler(0, true), Failure);
    core.attach_sampler(10, true);
    EXPECT_THROW(core.attach_sampler(10, true), Failure);
    EXPECT_THROW(core.take_lease(), Failure);  // outside of a step
    core.start({.epochs = 1});
    core.begin_step();
    EXPECT_THROW(core.end_step(), Failure);  // nobody took the samples
    core.take_lease();
    EXPECT_THROW(core.take_lease(), Failure);
  });
}

TEST(Session, AJobOfOneNeedsNoLauncher) {
  auto session = Session::join({.seed = 7});
  EXPECT_EQ(session.rank(), 0);
  EXPECT_EQ(session.size(), 1);
  EXPECT_EQ(session.seed(), 7U);
  std::vector<float> values{1, 2, 3};
  session.all_reduce<float>("x", values, Op::mean);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  auto region = session.allocate("r", 400);
  EXPECT_EQ(region.input<float>().size(), 100U);
  region.input<float>()[99] = 4;
  EXPECT_EQ(session.reduce<float>("r", region, Op::sum).wait()[99], 4);
  EXPECT_DOUBLE_EQ(session.average("a", 3), 3);
  ElasticSampler sampler(session, 10, {.local_batch = 4});
  EXPECT_EQ(sampler.steps_per_epoch(), 3U);
  int steps = 0;
  for (auto step : session.steps({.epochs = 2})) {
    step.log("size", static_cast<double>(sampler.next().size()));
    ++steps;
  }
  EXPECT_EQ(steps, 6);
  EXPECT_DOUBLE_EQ(session.averages().at("size"), 2);
}

}  // namespace
}  // namespace pliant::session
