#include "policy/autoscale.h"

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

  std::vector<int> run(std::vector<PolicyPtr>& copies) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal(1, noise);
    std::vector<int> sizes;
    int wanted = workers, wait = 0;
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
      sizes.push_back(workers);
      std::optional<int> wish;
      for (std::size_t i = 0; i < copies.size(); ++i) {
        auto said = copies[i]->after_step(report).workers;
        if (i == 0) wish = said;
        EXPECT_EQ(said, wish) << "copy " << i << ", step " << step;
      }
      if (wish) wanted = *wish, wait = late;
      if (wait > 0 && --wait == 0) workers = wanted;
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
  for (const auto* text :
       {"autoscale:min=4,max=2", "autoscale:utility=cubic:1@2", "autoscale:search=none", "autoscale:most=3"})
    EXPECT_THROW(make_policy(text), Failure) << text;
}

}  // namespace
}  // namespace pliant::policy
