// Workers that die: as threads, whose death is that their Runtime vanishes without a word.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "base/fault.h"
#include "session/workers.h"

namespace pliant::session {
namespace {

constexpr std::uint64_t kSamples = 103;

/// Where in a step somebody dies.
enum class Where { before_lease, before_submit, between_buckets, after_submit, after_close, after_end };
constexpr Where kPlaces[] = {Where::before_lease, Where::before_submit, Where::between_buckets,
                             Where::after_submit, Where::after_close,   Where::after_end};

struct Death {
  int worker = 0;
  std::uint64_t step = 0;
  Where where = Where::before_submit;
};

/// What a worker saw of a step.
struct Seen {
  std::vector<float> sums;
  std::uint64_t epoch = 0;
  std::vector<std::uint64_t> samples;
};

struct Course {
  std::vector<double> workloads;  // by worker; empty: as usual
  std::vector<int> hosts;         // by worker; empty: all on one
  std::mutex mutex;
  std::map<std::uint64_t, std::map<std::uint64_t, Seen>> steps;  // by step and worker; guarded by mutex
  std::map<std::uint64_t, std::uint64_t> digests;                // by worker, at the end; guarded by mutex
};

/// Trains a vector by adding, in every step, the sum over samples of one-hot vectors: at the end it says how often each
/// sample was used. Two buckets per step, so that there is a between.
void train(std::unique_ptr<Runtime> runtime, const std::vector<Death>& deaths, Course& course, std::uint64_t epochs) {
  std::vector<float> counts(2 * kSamples);
  runtime->replicas().add("counts", state_of(std::span<float>(counts)));
  runtime->set_batch({7, 0});
  runtime->attach_sampler(kSamples, true);
  auto first = runtime->region("first", kSamples * 4), second = runtime->region("second", kSamples * 4);
  runtime->start({.epochs = epochs});
  std::uint64_t turn = 0;
  auto dies = [&](Where where) {
    for (const auto& death : deaths)
      if (death.worker == static_cast<int>(runtime->worker()) && death.step == turn && death.where == where)
        return true;
    return false;
  };
  if (!course.workloads.empty()) runtime->set_workload(course.workloads.at(runtime->worker()));
  for (auto step = runtime->begin_step(); step; step = runtime->begin_step()) {
    turn = step->index();
    if (dies(Where::before_lease)) return;
    auto lease = runtime->take_lease();
    if (dies(Where::before_submit)) return;
    auto one = submit_use(*runtime, first, lease);
    if (dies(Where::between_buckets)) return;
    auto two = submit_use(*runtime, second, lease);
    if (dies(Where::after_submit)) return;
    runtime->close_step();
    const auto* a = static_cast<const float*>(one->result());
    const auto* b = static_cast<const float*>(two->result());
    for (std::size_t i = 0; i < kSamples; ++i) counts[i] += a[i], counts[kSamples + i] += b[i];
    {
      std::lock_guard lock(course.mutex);
      course.steps[runtime->step()][runtime->worker()] = {{a, a + kSamples}, lease.epoch, lease.samples};
    }
    if (dies(Where::after_close)) return;
    runtime->end_step();
    if (dies(Where::after_end)) return;
  }
  for (auto count : counts) EXPECT_EQ(count, static_cast<float>(epochs));
  auto digest = runtime->digest();
  std::lock_guard lock(course.mutex);
  course.digests[runtime->worker()] = digest;
  runtime->leave();
}

void check(int workers, const std::vector<Death>& deaths, Course& course, std::uint64_t epochs = 2) {
  auto body = [&](std::unique_ptr<Runtime> runtime) { train(std::move(runtime), deaths, course, epochs); };
  if (course.hosts.empty())
    run_runtimes(workers, body);
  else
    run_runtimes_on(course.hosts, body);
  std::set<int> dead;
  for (const auto& death : deaths) dead.insert(death.worker);
  EXPECT_EQ(course.digests.size(), static_cast<std::size_t>(workers) - dead.size());
  std::uint64_t next = 0;
  for (const auto& [step, seen] : course.steps) {
    EXPECT_EQ(step, next++) << "a step was lost";
    for (const auto& [worker, what] : seen) EXPECT_EQ(what.sums, seen.begin()->second.sums) << "in step " << step;
  }
  std::set<std::uint64_t> digests;
  for (const auto& [worker, digest] : course.digests) digests.insert(digest);
  EXPECT_EQ(digests.size(), 1U);
}

void run(int workers, const std::vector<Death>& deaths) {
  Course course;
  check(workers, deaths, course);
}

TEST(Elastic, NobodyDies) { run(3, {}); }

TEST(Elastic, ADeathAnywhereInAStepLosesNoStepAndNoSample) {
  for (auto where : kPlaces)
    for (int worker : {0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << "worker " << worker << " at place " << static_cast<int>(where));
      run(3, {{worker, 3, where}});
    }
}

TEST(Elastic, InAnEpochsLastStepToo) {
  // 103 samples in batches of 21: the fifth step (4) has 19 of them.
  for (auto where : kPlaces) run(3, {{1, 4, where}});
}

TEST(Elastic, SeveralAtOnceAndOneAfterTheOtherDownToOne) {
  for (auto where : kPlaces) {
    SCOPED_TRACE(static_cast<int>(where));
    run(4, {{1, 2, where}, {3, 2, where}});
    run(4, {{0, 1, where}, {1, 2, where}, {2, 3, where}});
    run(2, {{0, 1, where}});
  }
}

TEST(Elastic, TheFirstStepsAreNoException) {
  for (auto where : kPlaces) run(3, {{0, 0, where}});
}

void run_on(const std::vector<int>& hosts, const std::vector<Death>& deaths) {
  Course course;
  course.hosts = hosts;
  check(static_cast<int>(hosts.size()), deaths, course);
}

TEST(AcrossHosts, NobodyDies) {
  run_on({0, 1}, {});
  run_on({0, 0, 1, 1}, {});
  run_on({0, 1, 2, 1}, {});
}

TEST(AcrossHosts, ADeathAnywhereInAStepLosesNoStepAndNoSample) {
  for (auto where : kPlaces)
    for (int worker : {0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << "worker " << worker << " at place " << static_cast<int>(where));
      run_on({0, 1, 2}, {{worker, 3, where}});
      run_on({0, 0, 1, 1}, {{worker, 3, where}});
    }
}

TEST(AcrossHosts, AWholeHostMayDie) {
  for (auto where : kPlaces) {
    SCOPED_TRACE(static_cast<int>(where));
    run_on({0, 0, 1, 1, 2}, {{2, 2, where}, {3, 2, where}});
    run_on({0, 0, 1}, {{2, 2, where}});
  }
}

TEST(AcrossHosts, OneAfterTheOther) {
  for (auto where : kPlaces) {
    SCOPED_TRACE(static_cast<int>(where));
    run_on({0, 1, 0, 1}, {{1, 1, where}, {0, 2, where}});
  }
}

TEST(Elastic, UnevenWorkloadsUseEverySampleOnceToo) {
  for (auto where : kPlaces) {
    Course course;
    course.workloads = {1, 0.25, 2};
    check(3, {{1, 3, where}}, course);
    auto taken = [&](std::uint64_t step, std::uint64_t worker) { return course.steps[step][worker].samples.size(); };
    EXPECT_EQ(taken(0, 0), 7U);  // nobody knows of the others' wishes yet
    EXPECT_EQ(taken(1, 0), 6U);
    EXPECT_EQ(taken(1, 1), 2U);
    EXPECT_EQ(taken(1, 2), 13U);
    EXPECT_EQ(taken(6, 0), 5U);  // of 14, between two
    EXPECT_EQ(taken(6, 2), 9U);
  }
}

TEST(Elastic, WhoTakesNothingHoldsNobodyUp) {
  Course course;
  course.workloads = {0, 1};
  check(2, {}, course);
  EXPECT_EQ(course.steps[2][0].samples.size(), 0U);
  EXPECT_EQ(course.steps[2][1].samples.size(), 14U);
}

/// Dies by an exception that its thread's body catches.
struct Died {};
thread_local bool dies_at_its_row = false;

TEST(Elastic, WhoHadGivenEverythingIsNotForgotten) {
  // Worker 2 dies when its row is out but before it can have seen the others': its samples count all the same, if it
  // had also been first to submit; whether they do or come back, every sample is used once.
  fault::intercept([](const char* point) {
    if (dies_at_its_row && std::string_view(point) == "row_published") throw Died();
  });
  std::atomic<int> spoken_for{0};
  for (int round = 0; round < 10; ++round)
    run_runtimes(3, [&](std::unique_ptr<Runtime> runtime) {
      std::vector<float> counts(kSamples);
      runtime->replicas().add("counts", state_of(std::span<float>(counts)));
      runtime->set_batch({7, 0});
      runtime->attach_sampler(kSamples, true);
      auto area = runtime->region("area", kSamples * 4);
      runtime->start({.epochs = 1});
      auto worker = runtime->worker();
      for (auto step = runtime->begin_step(); step; step = runtime->begin_step()) {
        auto lease = runtime->take_lease();
        auto ticket = submit_use(*runtime, area, lease);
        dies_at_its_row = worker == 2 && step->index() == 1;
        if (worker != 2 && step->index() == 1) usleep(20'000);  // so that the others come too late
        try {
          runtime->close_step();
        } catch (const Died&) {
          dies_at_its_row = false;
          return;
        }
        const auto* sums = static_cast<const float*>(ticket->result());
        float all = 0;
        for (std::size_t i = 0; i < kSamples; ++i) counts[i] += sums[i], all += sums[i];
        if (step->index() == 1 && worker == 0 && all == 21) ++spoken_for;
        runtime->end_step();
      }
      for (auto count : counts) EXPECT_EQ(count, 1);
      runtime->leave();
    });
  fault::intercept({});
  EXPECT_GT(spoken_for, 0);
}

/// Global batch, this worker's part and what linear scaling makes of it, as two workers see them before and after the
/// third one dies.
struct Batch {
  std::uint64_t global = 0, local = 0;
  double scaled = 0;
  bool operator==(const Batch&) const = default;
};
std::map<int, Batch> batches(const BatchPlan& plan) {
  std::map<int, Batch> seen;  // by number of workers, of worker 0
  run_runtimes(3, [&](std::unique_ptr<Runtime> runtime) {
    runtime->set_batch(plan);
    runtime->attach_sampler(10'000, true);
    runtime->start({.steps = 6});
    auto scale = rules::linear_scaling(10);
    for (auto step = runtime->begin_step(); step; step = runtime->begin_step()) {
      if (runtime->worker() == 2 && step->index() == 3) return;
      auto lease = runtime->take_lease();
      if (runtime->worker() == 0)
        seen[runtime->size()] = {runtime->global_batch(), lease.size(), scale(runtime->where())};
      runtime->end_step();
      EXPECT_EQ(runtime->report().local_batch,
                runtime->report().global_batch / static_cast<unsigned>(runtime->report().size));
    }
    runtime->leave();
  });
  return seen;
}

TEST(BatchRules, PerWorkerItGrowsWithThemUpToTheUsersLimit) {
  EXPECT_EQ(batches({.local = 10}), (std::map<int, Batch>{{3, {30, 10, 3}}, {2, {20, 10, 2}}}));
  EXPECT_EQ(batches({.local = 10, .limit = 25}), (std::map<int, Batch>{{3, {25, 9, 2.5}}, {2, {20, 10, 2}}}));
}

TEST(BatchRules, InAllItIsDividedAndStays) {
  EXPECT_EQ(batches({.global = 25}), (std::map<int, Batch>{{3, {25, 9, 2.5}}, {2, {25, 13, 2.5}}}));
}

TEST(Elastic, CollectivesOutsideTheStepsReductionSurviveToo) {
  run_runtimes(3, [](std::unique_ptr<Runtime> runtime) {
    runtime->start({.steps = 4});
    for (auto step = runtime->begin_step(); step; step = runtime->begin_step()) {
      runtime->close_step();
      if (runtime->worker() == 2 && step->index() == 1) return;  // in the middle of what would be an evaluation
      auto mean = runtime->average("accuracy", static_cast<double>(runtime->worker()), 1);
      EXPECT_DOUBLE_EQ(mean, step->index() == 0 ? 1 : 0.5);
      std::vector<double> values{1, 2};
      runtime->wait(runtime->submit({.name = "plain",
                                     .dtype = Dtype::f64,
                                     .count = 2,
                                     .in = values.data(),
                                     .out = values.data(),
                                     .caller_waits = true}));
      EXPECT_EQ(values[1], step->index() == 0 ? 6 : 4);
      runtime->end_step();
    }
    EXPECT_EQ(runtime->size(), 2);
    runtime->leave();
  });
}

TEST(Elastic, AResultStaysReadableThoughNobodyHoldsItsReduction) {
  run_runtimes(3, [](std::unique_ptr<Runtime> runtime) {
    Session session(std::move(runtime));
    auto region = session.allocate("r", 4 << 20);
    std::span<const float> before;
    for (auto step : session.steps({.steps = 6})) {
      region.input<float>()[0] = 1;
      auto now = session.reduce<float>("r", region).wait();
      if (session.worker() == 2 && step.index() == 1) return;
      auto size = static_cast<float>(session.size());
      (void)session.average("an evaluation", 1);  // in which the death is noticed
      EXPECT_EQ(now[0], step.index() <= 1 ? 3 : size);
      if (step.index() == 2) {
        EXPECT_EQ(before[0], 3);  // of the view before
      }
      before = now;
    }
  });
}

TEST(Elastic, WhatWasGivenUpIsNotReducedAgain) {
  run_runtimes(2, [](std::unique_ptr<Runtime> runtime) {
    runtime->start({.steps = 2});
    ASSERT_TRUE(runtime->begin_step());
    std::vector<double> memory(runtime->worker() == 0 ? 2 : 3, 1.0);
    auto reduction = runtime->submit({.name = "unequal",
                                      .dtype = Dtype::f64,
                                      .op = Op::sum,
                                      .count = memory.size(),
                                      .in = memory.data(),
                                      .out = memory.data(),
                                      .caller_waits = true});
    EXPECT_THROW(runtime->wait_here(reduction), Failure);
    if (runtime->worker() == 1) return;
    std::ranges::fill(memory, 7.0);  // as if it were somebody else's by now
    while (runtime->view().size() == 2) {
      runtime->start({.steps = 2});  // the other's death is noticed between two steps
      ASSERT_TRUE(runtime->begin_step());
    }
    EXPECT_EQ(runtime->average("what follows", 1, 1), 1);
    EXPECT_EQ(memory, std::vector<double>({7, 7}));
  });
}

TEST(Elastic, AThousandReductionsInFlightSurviveADeath) {
  constexpr std::size_t kInFlight = 1'000;
  run_runtimes(3, [](std::unique_ptr<Runtime> runtime) {
    runtime->start({.steps = 4});  // whom samples are dealt to follows two steps later
    for (auto step = runtime->begin_step(); step; step = runtime->begin_step()) {
      runtime->close_step();
      if (runtime->worker() == 2 && step->index() == 1) return;
      std::vector<double> values(kInFlight, 1);
      std::vector<step::StepReductionPtr> reductions;
      for (auto& value : values)
        reductions.push_back(
            runtime->submit({.name = "p", .dtype = Dtype::f64, .count = 1, .in = &value, .out = &value}));
      for (const auto& reduction : reductions) runtime->wait(reduction);
      for (auto value : values) ASSERT_EQ(value, step->index() == 0 ? 3 : 2);
      runtime->end_step();
    }
    EXPECT_EQ(runtime->size(), 2);
    runtime->leave();
  });
}

/// Reductions of ever other lengths, some of them in flight across the end of a view.
void reduce_other_lengths(Runtime& runtime, std::size_t changes) {
  constexpr std::size_t kInFlight = 50;
  auto size = static_cast<double>(runtime.size());
  for (std::size_t i = 0; i < changes; i += kInFlight) {
    std::vector<std::vector<double>> values;
    std::vector<step::StepReductionPtr> reductions;
    for (std::size_t k = 0; k < kInFlight; ++k) values.emplace_back(1 + (i + k) % 3, 1);
    for (auto& value : values)
      reductions.push_back(runtime.submit(
          {.name = "p", .dtype = Dtype::f64, .count = value.size(), .in = value.data(), .out = value.data()}));
    for (const auto& reduction : reductions) runtime.wait(reduction);
    for (const auto& value : values) ASSERT_EQ(value.back(), size) << "after " << i;
  }
}

constexpr std::size_t kChanges = 8'500;  // a view has room for 8192

TEST(Elastic, LengthsMayChangeMoreOftenThanAViewHasRoomFor) {
  run_workers(2, [](Runtime& runtime) {
    runtime.start({.steps = 2});
    reduce_other_lengths(runtime, kChanges);
    for (auto step = runtime.begin_step(); step; step = runtime.begin_step()) {
      reduce_other_lengths(runtime, step->index() == 0 ? kChanges : 100);
      runtime.close_step();
      runtime.end_step();
    }
    EXPECT_EQ(runtime.size(), 2);
  });
}

TEST(Elastic, LengthsMayChangeAsOftenInAJobOfOne) {
  auto runtime = Runtime::join({}).or_throw();
  runtime->start({.steps = 1});
  reduce_other_lengths(*runtime, kChanges);
}

}  // namespace
}  // namespace pliant::session
