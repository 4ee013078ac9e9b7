#include "policy/autoscale.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "base/result.h"

namespace pliant::policy {
namespace {

/// A job with 100 samples per worker and step, in which wishes are granted `late` steps later.
struct Job {
  std::function<double(int)> rate;  // samples per second
  double noise = 0;                 // of a step's time, relative
  int late = 2;
  int workers = 2;
  std::uint64_t steps = 1000;
  double noise_scale = 0;
  std::uint64_t batch = 0;  // in all; 0: 100 per worker
  unsigned seed = 7;
  std::function<int(std::uint64_t)> capacity = [](auto) { return 16; };  // by step
  std::uint64_t last_wish = 0;                                           // the step of it
  double elapsed = 0;

  std::vector<int> run(std::vector<PolicyPtr>& copies) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(1, noise);
    std::vector<int> sizes;
    int wanted = workers, granted = workers, wait = 0;
    double seconds = 0;  // of the step before
    for (std::uint64_t step = 0; step < steps; ++step) {
      StepReport report;
      report.step = step;
      report.size = workers;
      report.samples = batch ? batch : static_cast<std::uint64_t>(100 * workers);
      if (noise_scale > 0) report.noise_scale = noise_scale;
      report.progress = static_cast<double>(step + 1) / static_cast<double>(steps);
      report.times.compute = seconds;
      seconds = static_cast<double>(report.samples) / rate(workers) * std::max(0.5, normal(random));
      elapsed += seconds;
      sizes.push_back(workers);
      std::optional<int> wish;
      for (std::size_t i = 0; i < copies.size(); ++i) {
        auto said = copies[i]->after_step(report).workers;
        if (i == 0) wish = said;
        EXPECT_EQ(said, wish) << "copy " << i << ", step " << step;
      }
      if (wish && *wish != workers) wanted = *wish, wait = late, last_wish = step;
      if (wait > 0 && --wait == 0) granted = wanted;
      workers = std::min(granted, capacity(step));
    }
    return sizes;
  }
};

std::vector<PolicyPtr> copies_of(const std::string& description, int count = 1) {
  std::vector<PolicyPtr> copies;
  for (int i = 0; i < count; ++i) copies.push_back(make_policy(description));
  return copies;
}

int changes_in(const std::vector<int>& sizes) {
  int changes = 0;
  for (std::size_t i = 1; i < sizes.size(); ++i) changes += sizes[i] != sizes[i - 1] ? 1 : 0;
  return changes;
}

TEST(Autoscale, EndsAtTheKneeAndStays) {
  for (int knee : {2, 5, 8, 12}) {
    auto copies = copies_of("autoscale:max=16", 2);
    Job job{.rate = [&](int workers) { return 1000.0 * std::min(workers, knee); }};
    auto sizes = job.run(copies);
    EXPECT_NEAR(sizes.back(), knee, std::max(1, knee / 8)) << knee;
    auto settled = std::find_if(sizes.rbegin(), sizes.rend(), [&](int size) { return size != sizes.back(); });
    EXPECT_LE(sizes.rend() - settled, 100) << knee;
  }
}

TEST(Autoscale, NoiseMakesItNeitherFlapNorLeave) {
  auto copies = copies_of("autoscale:max=16");
  Job job{.rate = [](int workers) { return 1000.0 * std::min(workers, 8); }, .noise = 0.05, .steps = 5000};
  auto sizes = job.run(copies);
  EXPECT_NEAR(sizes.back(), 8, 2);
  EXPECT_EQ(changes_in({sizes.begin() + 200, sizes.end()}), 0);
}

TEST(Autoscale, SearchesAgainWhenTheJobHasChanged) {
  auto copies = copies_of("autoscale:max=16");
  int knee = 4;
  Job job{.rate = [&](int workers) { return 1000.0 * std::min(workers, knee) * (knee == 4 ? 1 : 0.5); }, .steps = 300};
  EXPECT_NEAR(job.run(copies).back(), 4, 1);
  knee = 12;
  EXPECT_NEAR(job.run(copies).back(), 12, 2);
}

TEST(Autoscale, PublishedSearchIsThereToo) {
  auto copies = copies_of("autoscale:search=published,min=4,max=60,efficiency=0.1");
  Job job{.rate = [](int workers) { return 1000.0 * std::min(workers, 16); }, .late = 1, .workers = 4};
  EXPECT_EQ(job.run(copies).back(), 16);
}

TEST(Autoscale, AUtilityDecidesInsteadOfEfficiency) {
  auto rate = [](int workers) { return 1000.0 * workers / (1 + 0.1 * (workers - 1)); };
  std::vector<int> ends;
  for (const auto* price : {"0.001", "1000"}) {
    auto copies = copies_of(std::string("autoscale:max=16,utility=linear:100@60,price=") + price);
    Job job{.rate = rate, .workers = 4};
    ends.push_back(job.run(copies).back());
  }
  EXPECT_EQ(ends[0], 16);  // workers that cost nothing
  EXPECT_LE(ends[1], 2);   // and those that cost more than the job is worth
}

TEST(Autoscale, AddsOneAndComparesAsKungFuDoes) {
  auto copies = copies_of("autoscale:by=add-one,max=16");
  Job job{.rate = [](int workers) { return 1000.0 * std::min(workers, 6); }};
  EXPECT_EQ(job.run(copies).back(), 6);
}

TEST(Autoscale, GoodputCountsWhatSamplesAreWorth) {
  std::vector<int> ends;
  for (double noise_scale : {50.0, 100'000.0}) {
    auto copies = copies_of("autoscale:by=goodput,max=16");
    Job job{.rate = [](int workers) { return 1000.0 * workers / (1 + 0.05 * (workers - 1)); }};
    job.noise_scale = noise_scale;
    ends.push_back(job.run(copies).back());
  }
  EXPECT_LE(ends[0], 4);   // little noise: a larger batch is waste
  EXPECT_EQ(ends[1], 16);  // much: every sample counts
}

TEST(Autoscale, AsFewAsTheDeadlineAllowsAndAsManyAsTheBudget) {
  auto rate = [](int workers) { return 1000.0 * workers / (1 + 0.05 * (workers - 1)); };
  // 1000 steps of 100 samples each, however many share them: alone they take 100 s.
  for (auto [options, low, high] : {std::tuple("deadline=30", 3, 5),
                                    {"deadline=11", 13, 16},
                                    {"deadline=1000", 1, 1},
                                    {"budget=120", 4, 7},
                                    {"budget=1000", 16, 16}}) {
    auto copies = copies_of(std::string("autoscale:max=16,") + options);
    Job job{.rate = rate, .batch = 100};
    auto end = job.run(copies).back();
    EXPECT_GE(end, low) << options;
    EXPECT_LE(end, high) << options;
  }
}

double amdahl(int workers) { return 1000.0 * workers / (1 + 0.05 * (workers - 1)); }

struct Known {
  std::string options;
  std::function<double(int)> rate;
  int best, low, high;  // where it ends, and where it may with noise
  double noise_scale = 0;
  std::uint64_t batch = 0;
};

/// 2000 steps each. Of 100 samples in all, where a deadline or a budget decides: alone they take 200 s, and all sizes k
/// cost 190 + 10 k.
const std::vector<Known>& known() {
  auto knee = [](int at) { return [at](int workers) { return 1000.0 * std::min(workers, at); }; };
  static const std::vector<Known> kAll = {
      {"efficiency=0.1", knee(5), 5, 5, 6},
      {"efficiency=0.1", knee(8), 8, 8, 10},
      {"by=add-one", knee(4), 4, 4, 5},
      {"by=add-one", knee(6), 6, 6, 7},
      {"by=goodput", amdahl, 10, 8, 11, 500},  // at √95 exactly, and 1 % less at 8
      {"by=goodput", amdahl, 16, 16, 16, 100'000},
      {"deadline=60,reserve=0", amdahl, 4, 4, 4, 0, 100},  // 57.5 s
      {"deadline=60", amdahl, 5, 4, 5, 0, 100},            // 48 s; 57.5 s with 4 are 1 % beyond the reserve
      {"deadline=40", amdahl, 7, 7, 7, 0, 100},
      {"deadline=2000", amdahl, 1, 1, 1, 0, 100},
      {"deadline=1", amdahl, 16, 16, 16, 0, 100},  // too late anyhow
      {"budget=275,reserve=0", amdahl, 8, 8, 8, 0, 100},
      {"budget=275", amdahl, 7, 7, 7, 0, 100},
      {"budget=2000", amdahl, 16, 16, 16, 0, 100},
      {"price=0.01,utility=100*(t<40)", amdahl, 7, 7, 7, 0, 100},  // nothing is worth anything until 7
      {"price=0.001,utility=100*exp(-t/1000)", amdahl, 16, 16, 16, 0, 100},
      {"price=0.01,utility=100*exp(-t/1000)", amdahl, 14, 11, 16, 0, 100},  // a second is worth 0.1, and 1 % less at 11
      {"price=3,utility=100*exp(-t/1000)", amdahl, 1, 1, 1, 0, 100},
  };
  return kAll;
}

TEST(Autoscale, EndsWhereItShould) {
  for (const auto& each : known()) {
    auto copies = copies_of("autoscale:max=16," + each.options);
    Job job{.rate = each.rate, .steps = 2000, .noise_scale = each.noise_scale, .batch = each.batch};
    EXPECT_EQ(job.run(copies).back(), each.best) << each.options;
    EXPECT_LT(job.last_wish, 150U) << each.options;
  }
}

TEST(Autoscale, NoiseMakesNothingFlap) {
  for (const auto& each : known()) {
    for (unsigned seed = 1; seed <= 5; ++seed) {
      auto copies = copies_of("autoscale:max=16," + each.options);
      Job job{.rate = each.rate, .noise = 0.05, .steps = 2000, .noise_scale = each.noise_scale};
      job.batch = each.batch;
      job.seed = seed;
      auto end = job.run(copies).back();
      EXPECT_GE(end, each.low) << each.options << ", seed " << seed;
      EXPECT_LE(end, each.high) << each.options << ", seed " << seed;
      EXPECT_LT(job.last_wish, 300U) << each.options << ", seed " << seed;
    }
  }
}

TEST(Autoscale, AReserveMakesUpForWhatIsTakenAway) {
  for (auto [options, in_time] : {std::pair("deadline=60,reserve=0", false), {"deadline=60", true}}) {
    auto copies = copies_of(std::string("autoscale:max=16,") + options);
    Job job{.rate = amdahl, .steps = 2000, .batch = 100};
    job.capacity = [](auto step) { return step >= 1700 && step < 1950 ? 2 : 16; };
    job.run(copies);
    EXPECT_EQ(job.elapsed <= 60, in_time) << options << ": " << job.elapsed << " s";
  }
}

TEST(Autoscale, ASharedObjectSaysWhatItIsWorth) {
  auto rate = [](int workers) { return amdahl(workers) / 100; };  // 10,000 samples: alone in 1000 s
  for (auto [options, best] : {std::pair("price=0.001", 2), {"price=10", 1}}) {
    auto copies = copies_of(fmt::format("autoscale:max=4,{},utility={}", options, PLIANT_UTILITY_OBJECT));
    Job job{.rate = rate, .steps = 1000, .batch = 10};
    EXPECT_EQ(job.run(copies).back(), best) << options;
  }
}

TEST(Autoscale, ANewcomersCopyExpectsWhatTheOthersDo) {
  const std::string description = "autoscale:max=16,price=0.001,utility=steps:100@5+50@20";
  auto copies = copies_of(description);
  Job job{.rate = amdahl, .steps = 5, .batch = 100};
  job.run(copies);
  copies.push_back(make_policy(description));
  copies[1]->load(copies[0]->save());
  job.steps = 1000;
  job.run(copies);
  EXPECT_EQ(copies[0]->save(), copies[1]->save());
}

TEST(Autoscale, ANewcomersCopyGoesOnAsTheOthersDo) {
  auto copies = copies_of("autoscale:max=16");
  Job job{.rate = [](int workers) { return 1000.0 * std::min(workers, 5); }, .noise = 0.1, .steps = 23};
  job.run(copies);
  copies.push_back(make_policy("autoscale:max=16"));
  copies[1]->load(copies[0]->save());
  job.steps = 500;
  job.run(copies);
  EXPECT_EQ(copies[0]->save(), copies[1]->save());
}

TEST(Autoscale, MistakesAreFoundAtOnce) {
  for (const auto* text : {"autoscale:min=4,max=2", "autoscale:utility=cubic:1@2", "autoscale:search=none",
                           "autoscale:most=3", "autoscale:utility=100*exp(", "autoscale:utility=./nowhere.so"})
    EXPECT_THROW(make_policy(text), Failure) << text;
}

}  // namespace
}  // namespace pliant::policy
