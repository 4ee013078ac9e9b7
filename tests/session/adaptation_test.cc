// Monitors and policies with several workers as threads, each with a Runtime of its own.
#include "session/adaptation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "policy/scripted.h"
#include "session/workers.h"

namespace pliant::session {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kParameters = 5000;

/// Steps in which every worker has a gradient: `fill(rank, step, samples)`.
using Fill = std::function<void(Runtime&, std::span<float> gradient, std::size_t samples)>;

void train(Runtime& runtime, std::uint64_t steps, const Fill& fill, const std::function<void(Runtime&)>& after = {}) {
  auto area = runtime.region("gradient", kParameters * sizeof(float));
  runtime.start({.steps = steps});
  for (auto step = runtime.begin_step(); step; step = runtime.begin_step()) {
    auto lease = runtime.take_lease();
    fill(runtime, {reinterpret_cast<float*>(area->region->input()), kParameters}, lease.size());
    runtime.submit({.name = "gradient",
                    .op = Op::weighted_mean,
                    .count = kParameters,
                    .memory = area,
                    .weight = runtime.contribution(),
                    .measure = runtime.gradient_measure(),
                    .with_step = true,
                    .gradient = true});
    runtime.end_step();
    if (after) after(runtime);
  }
}

/// The mean over `samples` draws with standard deviation 1 around 0.1 in every direction.
void noisy(Runtime& runtime, std::span<float> gradient, std::size_t samples) {
  std::mt19937_64 random(runtime.random(1000 + static_cast<std::uint64_t>(runtime.rank())).key());
  std::normal_distribution<double> normal(0.1, samples ? 1 / std::sqrt(static_cast<double>(samples)) : 0);
  for (float& value : gradient) value = static_cast<float>(normal(random));
}

void still(Runtime& /*runtime*/, std::span<float> gradient, std::size_t /*samples*/) {
  std::fill(gradient.begin(), gradient.end(), 1.0F);
}

TEST(Monitors, TheNoiseScaleIsRightOnAnyNumberOfWorkersAndTheSameOnAll) {
  // tr Σ is 1 per direction, |G|² 0.01: the scale is 100.
  for (int workers : {1, 2, 3, 5}) {
    std::uint64_t steps = workers == 1 ? 640 : 60;  // one alone looks now and then
    std::mutex mutex;
    std::map<std::uint64_t, std::vector<StepReport>> reports;  // by step
    run_workers(workers, [&](Runtime& runtime) {
      runtime.set_batch({0, 33});  // uneven for most
      runtime.attach_sampler(100'000, true);
      train(runtime, steps, noisy, [&](Runtime& each) {
        std::lock_guard lock(mutex);
        reports[each.report().step].push_back(each.report());
      });
    });
    ASSERT_EQ(reports.size(), steps);
    for (const auto& [step, all] : reports) {
      ASSERT_EQ(all.size(), static_cast<std::size_t>(workers));
      for (const auto& report : all) {
        ASSERT_EQ(report.noise_scale, all[0].noise_scale) << step;
        ASSERT_EQ(report.gradient_norm, all[0].gradient_norm) << step;
        ASSERT_EQ(report.noise_biased, report.noise_scale && workers == 1) << step;
      }
      if (workers > 1) {
        ASSERT_TRUE(all[0].noise_scale) << step;
      }
      ASSERT_FALSE(all[0].noise_scale && !std::isfinite(*all[0].noise_scale));
    }
    const auto& last = reports.rbegin()->second[0];
    EXPECT_NEAR(*last.noise_scale, 100, 10) << workers;
    EXPECT_NEAR(last.noise_variance, static_cast<double>(kParameters), kParameters * 0.05) << workers;
    EXPECT_EQ(last.samples, 33U);
    EXPECT_EQ(last.size, workers);
  }
}

/// Like train(), with three tensors of 1000, 3500 and 500 elements in one gradient.
TEST(Monitors, TensorsHaveVariancesOfTheirOwn) {
  for (const auto& hosts : {std::vector<int>{0, 0}, {0, 0, 0}, {0, 1, 1}, {0, 1}}) {
    auto body = [&](std::unique_ptr<Runtime> runtime) {
      runtime->adaptation().monitor({.noise_scale = 1, .variance = 2});
      runtime->set_batch({0, 30});
      runtime->attach_sampler(100'000, true);
      auto area = runtime->region("gradient", kParameters * sizeof(float));
      auto marks = std::make_shared<collective::Marks>(collective::Marks{0, 1000 * 4, 4500 * 4});
      runtime->start({.steps = 6});
      for (auto step = runtime->begin_step(); step; step = runtime->begin_step()) {
        auto lease = runtime->take_lease();
        auto* values = reinterpret_cast<float*>(area->region->input());
        noisy(*runtime, {values, kParameters}, lease.size());
        for (std::size_t i = 1000; i < 4500; ++i) values[i] *= 2;  // four times the variance
        runtime->submit({.name = "gradient",
                         .op = Op::weighted_mean,
                         .count = kParameters,
                         .memory = area,
                         .weight = runtime->contribution(),
                         .measure = runtime->gradient_measure(),
                         .with_step = true,
                         .gradient = true,
                         .marks = runtime->variance_due() ? marks : nullptr,
                         .tensors = {2, 0, 1}});
        bool due = runtime->variance_due();
        runtime->end_step();
        const auto& seen = runtime->report();
        ASSERT_EQ(seen.variances.size(), due ? 3U : 0U) << seen.step;
        if (!due) continue;
        EXPECT_NEAR(seen.variances[2], 1000, 150);
        EXPECT_NEAR(seen.variances[0], 4 * 3500, 1500);
        EXPECT_NEAR(seen.variances[1], 500, 100);
        EXPECT_DOUBLE_EQ(seen.variance, seen.variances[0] + seen.variances[1] + seen.variances[2]);
      }
      runtime->leave();
    };
    if (hosts.back() == 0)
      run_runtimes(static_cast<int>(hosts.size()), body);
    else
      run_runtimes_on(hosts, body);
  }
}

TEST(Monitors, HaveAnIntervalAndMayBeOff) {
  run_workers(2, [](Runtime& runtime) {
    runtime.adaptation().monitor({.noise_scale = 0});
    runtime.set_batch({8, 0});
    runtime.attach_sampler(1000, true);
    train(runtime, 3, noisy, [](Runtime& each) {
      EXPECT_FALSE(each.report().noise_scale);
      EXPECT_GT(each.report().gradient_norm, 0);
      EXPECT_GT(each.report().times.whole() + (each.report().step == 0 ? 1 : 0), 0);
    });
  });
  EXPECT_THROW(Adaptation().monitor({.noise_memory = 1}), Failure);
}

// ---- policies ----

void use(Runtime& runtime, const std::string& name, std::function<Action(const StepReport&)> script) {
  runtime.adaptation().use(name, std::make_unique<policy::Scripted>(std::move(script)));
}

TEST(Policies, WishesTakeEffectAfterTheNextStepOnAllWorkersAtOnce) {
  run_workers(3, [](Runtime& runtime) {
    runtime.set_batch({4, 0});
    runtime.attach_sampler(10'000, true);
    use(runtime, "grow", [](const StepReport& seen) {
      if (seen.step == 2) return batch_of(60);
      if (seen.step == 4) return batch_per_worker(7).also(scale_rate(0.5));
      return seen.step == 6 ? stop() : keep();
    });
    std::vector<std::uint64_t> batches;
    train(runtime, 100, still, [&](Runtime& each) { batches.push_back(each.report().samples); });
    // Formed after step 2, sent with step 3, done for step 4.
    EXPECT_EQ(batches, (std::vector<std::uint64_t>{12, 12, 12, 12, 60, 60, 21, 21}));
    EXPECT_EQ(runtime.adaptation().rate_factor(), 0.5);
  });
}

TEST(Policies, OneThatThrowsLoopsOrDiffersGoesAndTheJobTrainsOn) {
  auto released = std::make_shared<std::atomic<bool>>(false);
  run_workers(3, [&](Runtime& runtime) {
    runtime.set_batch({4, 0});
    runtime.attach_sampler(10'000, true);
    int rank = runtime.rank();
    use(runtime, "throws", [rank](const StepReport& seen) -> Action {
      if (seen.step == 1 && rank == 2) throw std::runtime_error("no idea");
      return keep();
    });
    use(runtime, "differs", [rank](const StepReport& seen) {
      return seen.step == 3 ? batch_per_worker(rank == 1 ? 6 : 5) : seen.step > 5 ? batch_per_worker(9) : keep();
    });
    use(runtime, "loops", [rank, released](const StepReport& seen) {
      while (seen.step == 5 && rank == 0 && !*released) std::this_thread::sleep_for(1ms);
      return seen.step > 7 ? batch_per_worker(9) : keep();
    });
    use(runtime, "good", [](const StepReport& seen) { return seen.step == 8 ? batch_per_worker(8) : keep(); });
    std::vector<std::uint64_t> batches;
    train(runtime, 12, still, [&](Runtime& each) { batches.push_back(each.report().samples); });
    EXPECT_EQ(batches, (std::vector<std::uint64_t>{12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 24, 24}));
  });
  *released = true;
  while (released.use_count() > 1) std::this_thread::sleep_for(1ms);
}

TEST(Policies, ContradictionsAreNotDone) {
  run_workers(2, [](Runtime& runtime) {
    runtime.set_batch({4, 0});
    runtime.attach_sampler(10'000, true);
    use(runtime, "a", [](const StepReport& seen) { return seen.step == 1 ? batch_per_worker(5) : keep(); });
    use(runtime, "b", [](const StepReport& seen) { return seen.step == 1 ? batch_per_worker(6) : keep(); });
    train(runtime, 6, still, [](Runtime& each) { EXPECT_EQ(each.report().samples, 8U); });
  });
}

TEST(Policies, OwnNumbersComeBackAsAverages) {
  class Curious final : public Policy {
   public:
    explicit Curious(int rank) : rank_(rank) {}
    void contribute(Numbers& numbers) override { numbers.add("mine", rank_ * 10.0); }
    Action after_step(const StepReport& seen) override {
      auto at = seen.averages.find("mine");
      if (seen.step >= 2) {
        EXPECT_DOUBLE_EQ(at == seen.averages.end() ? -1 : at->second, 5);
      }
      return keep();
    }

   private:
    int rank_;
  };
  run_workers(2, [](Runtime& runtime) {
    runtime.set_batch({4, 0});
    runtime.attach_sampler(10'000, true);
    runtime.adaptation().use("curious", std::make_unique<Curious>(runtime.rank()));
    train(runtime, 5, still);
  });
}

TEST(Policies, SeeTheSameReportEverywhere) {
  std::mutex mutex;
  std::map<std::uint64_t, std::vector<std::string>> seen;
  run_workers(3, [&](Runtime& runtime) {
    runtime.set_batch({4, 0});
    runtime.attach_sampler(50, true);
    use(runtime, "look", [&](const StepReport& report) {
      std::string all;
      for (double number : {report.times.compute, report.times.exposed, report.samples_per_second,
                            report.noise_scale.value_or(-1), report.progress, static_cast<double>(report.samples)})
        all += std::to_string(std::bit_cast<std::uint64_t>(number)) + " ";
      std::lock_guard lock(mutex);
      seen[report.step].push_back(all);
      return keep();
    });
    train(runtime, 10, noisy);
  });
  ASSERT_EQ(seen.size(), 10U);
  for (const auto& [step, all] : seen) {
    ASSERT_EQ(all.size(), 3U);
    EXPECT_EQ(all[0], all[1]) << step;
    EXPECT_EQ(all[0], all[2]) << step;
  }
}

TEST(Policies, AreAddedBeforeTheLoop) {
  run_workers(1, [](Runtime& runtime) {
    runtime.set_batch({4, 0});
    runtime.attach_sampler(50, true);
    train(runtime, 1, still);
    EXPECT_THROW(use(runtime, "late", [](const auto&) { return keep(); }), Failure);
    EXPECT_THROW(runtime.adaptation().use("none", nullptr), Failure);
  });
}

TEST(Adaptation, MovesToAnotherWorker) {
  Adaptation here, there;
  step::Summary summary;
  summary.samples = 64;
  summary.contributors = 2;
  here.observe(collective::Measured{5, 64 * 7}, summary, true);
  here.stop();
  there.load(here.save()).or_throw();
  EXPECT_TRUE(there.stopped());
  StepReport a, b;
  here.conclude(a, false);
  there.conclude(b, false);
  EXPECT_EQ(a.noise_scale, b.noise_scale);
  EXPECT_TRUE(a.noise_scale);
  auto saved = here.save();
  for (std::size_t size = 0; size < saved.size(); ++size) EXPECT_FALSE(there.load(saved.substr(0, size)).ok());
}

}  // namespace
}  // namespace pliant::session
