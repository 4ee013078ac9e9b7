// The step boundary with several workers as threads, each with a Runtime of its own.
#include "session/runtime.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <numeric>

#include "session/workers.h"

namespace pliant::session {
namespace {

std::optional<Step> next(Runtime& runtime, bool first) {
  if (!first) runtime.end_step();
  return runtime.begin_step();
}

TEST(Runtime, EverySampleOncePerEpochOnAnyNumberOfWorkers) {
  for (int workers : {1, 2, 3, 5}) {
    std::mutex mutex;
    std::map<std::uint64_t, std::vector<int>> used;  // by epoch
    run_workers(workers, [&](Runtime& runtime) {
      runtime.set_batch({7, 0});
      runtime.attach_sampler(103, true);
      runtime.start({.epochs = 3});
      for (auto step = next(runtime, true); step; step = next(runtime, false)) {
        auto foreseen = runtime.next_lease();
        auto lease = runtime.take_lease();
        EXPECT_EQ(runtime.contribution(), static_cast<double>(lease.size()));
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

TEST(Runtime, PeekForeseesTheNextLease) {
  run_workers(2, [](Runtime& runtime) {
    runtime.set_batch({4, 0});
    runtime.attach_sampler(21, true);
    runtime.start({.epochs = 2});
    Lease foreseen;
    bool first = true;
    for (auto step = next(runtime, true); step; step = next(runtime, false)) {
      auto lease = runtime.take_lease();
      if (!first) {
        EXPECT_EQ(lease.samples, foreseen.samples);
      }
      first = false;
      foreseen = runtime.next_lease();
    }
    EXPECT_TRUE(foreseen.empty());  // behind the last epoch
  });
}

TEST(Runtime, AnEmptyLeaseContributesNothingAndHangsNobody) {
  run_workers(4, [](Runtime& runtime) {
    runtime.set_batch({0, 4});
    runtime.attach_sampler(3, false);  // three samples, four workers
    runtime.start({.epochs = 2});
    int steps = 0;
    for (auto step = next(runtime, true); step; step = next(runtime, false), ++steps) {
      EXPECT_TRUE(step->ends_epoch());
      auto lease = runtime.take_lease();
      EXPECT_EQ(lease.size(), runtime.rank() < 3 ? 1U : 0U);
      runtime.log("rank", runtime.rank() == 3 ? 1000 : runtime.rank());
    }
    EXPECT_EQ(steps, 2);
    EXPECT_DOUBLE_EQ(runtime.averages().at("rank"), 1);  // of ranks 0, 1 and 2
  });
}

TEST(Runtime, StateIsCopiedFromRankZeroBeforeTheFirstStep) {
  run_workers(3, [](Runtime& runtime) {
    std::vector<float> weights(300'001, static_cast<float>(runtime.rank() + 5));  // more than one block
    std::vector<double> more(17, runtime.rank());
    runtime.replicas().add("weights", state_of(std::span<float>(weights)));
    runtime.replicas().add("more", state_of(std::span<double>(more)));
    runtime.start({.steps = 1});
    for (float weight : weights) ASSERT_EQ(weight, 5);
    for (double value : more) ASSERT_EQ(value, 0);
    runtime.begin_step();
    runtime.end_step();
    EXPECT_EQ(runtime.digest(), runtime.replicas().digest());
  });
}

TEST(Runtime, DifferentModelsAreRefusedWithTheirSizes) {
  run_workers(2, [](Runtime& runtime) {
    std::vector<float> weights(runtime.rank() == 0 ? 100 : 200);
    runtime.replicas().add("weights", state_of(std::span<float>(weights)));
    try {
      runtime.start({.steps = 1});
      FAIL() << "they agreed";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), Code::mismatch);
      EXPECT_NE(std::string(failure.what()).find("rank 1"), std::string::npos) << failure.what();
    }
  });
}

TEST(Runtime, BuffersAreAveragedBySamplesAndCountersTakeTheMaximum) {
  class Buffers final : public State {
   public:
    std::vector<float> mean = std::vector<float>(10);
    std::int64_t batches = 0;
    std::vector<StateItem> items() override {
      return {{"mean", Dtype::f32, mean.data(), mean.size(), Role::average, nullptr},
              {"batches", Dtype::i64, &batches, 1, Role::counter, nullptr}};
    }
  };
  run_workers(3, [](Runtime& runtime) {
    auto buffers = std::make_shared<Buffers>();
    runtime.replicas().add("buffers", buffers);
    runtime.set_batch({0, 6});
    runtime.attach_sampler(4, false);  // parts of 2, 1 and 1
    runtime.start({.epochs = 1});
    runtime.begin_step();
    auto lease = runtime.take_lease();
    for (float& x : buffers->mean) x = static_cast<float>(4 * runtime.rank());
    buffers->batches = 10 + runtime.rank();
    runtime.end_step();
    for (float x : buffers->mean) EXPECT_FLOAT_EQ(x, (2 * 0 + 1 * 4 + 1 * 8) / 4.0F);
    EXPECT_EQ(buffers->batches, 12);
  });
}

TEST(Runtime, AReplicaThatDeviatesIsFoundWithin64StepsAndNamed) {
  run_workers(3, [](Runtime& runtime) {
    std::vector<float> weights(1000, 1);
    runtime.replicas().add("weights", state_of(std::span<float>(weights)));
    runtime.start({.steps = 200});
    try {
      for (auto step = next(runtime, true); step; step = next(runtime, false))
        if (step->index() == 30 && runtime.rank() == 1) weights[500] = 1.0000001F;
      FAIL() << "nobody noticed";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), Code::diverged);
      EXPECT_NE(std::string(failure.what()).find("rank 1 deviates"), std::string::npos) << failure.what();
      EXPECT_LE(runtime.step(), 30U + 65U);
    }
  });
}

TEST(Runtime, MistakesAreSaidAtOnce) {
  run_workers(1, [](Runtime& runtime) {
    EXPECT_THROW(runtime.start({}), Failure);
    EXPECT_THROW(runtime.start({.epochs = 1}), Failure);  // without a sampler
    EXPECT_THROW(runtime.set_batch({0, 0}), Failure);
    EXPECT_THROW(runtime.attach_sampler(0, true), Failure);
    runtime.attach_sampler(10, true);
    EXPECT_THROW(runtime.attach_sampler(10, true), Failure);
    EXPECT_THROW(runtime.take_lease(), Failure);  // outside of a step
    runtime.start({.epochs = 1});
    runtime.begin_step();
    EXPECT_THROW(runtime.end_step(), Failure);  // nobody took the samples
    runtime.take_lease();
    EXPECT_THROW(runtime.take_lease(), Failure);
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

TEST(Loops, AnotherBeginsAfterOneThatWasLeftInTheMiddleOfAStep) {
  for (bool closed : {false, true}) {
    run_workers(2, [&](Runtime& runtime) {
      runtime.start({.steps = 5});
      runtime.begin_step();
      runtime.end_step();
      runtime.begin_step();
      if (closed) runtime.close_step();
      EXPECT_EQ(runtime.digest(), runtime.replicas().digest());  // between the loops
      runtime.start({.steps = 5});
      std::uint64_t steps = 0;
      for (auto step = next(runtime, true); step; step = next(runtime, false))
        EXPECT_EQ(step->index(), 1 + steps++) << "the step that was left does not count";
      EXPECT_EQ(steps, 4U);
      EXPECT_EQ(runtime.outcome(), Outcome::finished);
    });
  }
}

}  // namespace
}  // namespace pliant::session
