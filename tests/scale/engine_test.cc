#include "scale/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "base/result.h"
#include "scale/search.h"

namespace pliant::scale {
namespace {

using Trajectory = std::vector<std::pair<int, int>>;  // (step, workers)

/// A job whose speed is known and whose wishes are granted at once.
Trajectory run(Engine& engine, int workers, int steps, const std::function<double(int)>& rate) {
  Trajectory changes;
  for (int step = 1; step <= steps; ++step) {
    auto wanted = engine.after_step(workers, rate(workers));
    if (wanted) changes.emplace_back(step, workers = *wanted);
  }
  return changes;
}

Trajectory published(double least_efficiency, int from, int steps, const std::function<double(int)>& rate) {
  SearchOptions options{.least = 4, .most = 60};
  Engine engine({}, [=](const Throughputs& seen, int now) {
    return published_search(seen, now, options, efficient(least_efficiency));
  });
  return run(engine, from, steps, rate);
}

double amdahl(int workers) { return 100.0 * workers / (1 + 0.05 * (workers - 1)); }
double knee_at_16(int workers) { return 100.0 * std::min(workers, 16); }

TEST(Published, GoldenTrajectories) {
  EXPECT_EQ(published(0.5, 4, 500, amdahl), (Trajectory{{10, 8}, {20, 12}, {30, 16}, {40, 20}, {150, 16}}));
  EXPECT_EQ(published(0.5, 40, 500, amdahl), (Trajectory{{10, 44},
                                                         {20, 36},
                                                         {30, 32},
                                                         {40, 28},
                                                         {50, 24},
                                                         {60, 20},
                                                         {70, 16},
                                                         {80, 12},
                                                         {90, 8},
                                                         {100, 4},
                                                         {110, 20},
                                                         {210, 16}}));
  auto knee = published(0.1, 4, 500, knee_at_16);
  EXPECT_EQ(knee.back(), std::pair(150, 16));
}

TEST(Published, TheDecksExamples) {
  EXPECT_DOUBLE_EQ(scaling_efficiency({4, 400}, {5, 480}), 0.8);
  EXPECT_NEAR(scaling_efficiency({16, 2200}, {32, 4000}), 0.818, 5e-4);
  EXPECT_DOUBLE_EQ(scaling_efficiency({32, 4000}, {64, 5000}), 0.25);
}

TEST(Short, FindsTheKneeInFewSteps) {
  for (int knee : {1, 2, 3, 5, 8, 16, 24, 60}) {
    for (int from : {1, 4, 40}) {
      SearchOptions options{.least = 1, .most = 60};
      Engine engine({.every = 1},
                    [=](const Throughputs& seen, int now) { return short_search(seen, now, options, efficient(0.1)); });
      auto changes = run(engine, from, 300, [&](int workers) { return 100.0 * std::min(workers, knee); });
      int found = changes.empty() ? from : changes.back().second;
      EXPECT_NEAR(found, knee, std::max(1, knee / 8)) << knee << " from " << from;
      EXPECT_LE(changes.empty() ? 0 : changes.back().first, 80) << knee << " from " << from;
    }
  }
}

/// Steps of one size differ by up to 5 %; sizes that are close by then differ by chance.
TEST(Short, MeasuresLongerWhereNoiseDecides) {
  for (int knee : {2, 5, 8, 10, 16, 24}) {
    for (unsigned seed = 1; seed <= 10; ++seed) {
      SearchOptions options{.least = 1, .most = 32, .window = 6};
      Engine engine({.every = 1, .drift = 0.3, .window = 6},
                    [=](const Throughputs& seen, int now) { return short_search(seen, now, options, efficient(0.1)); });
      std::mt19937 random(seed);
      std::uniform_real_distribution<double> noise(0.95, 1.05);
      auto changes = run(engine, 2, 2000, [&](int workers) { return 100.0 * std::min(workers, knee) / noise(random); });
      EXPECT_NEAR(changes.back().second, knee, std::max(1, knee / 8)) << knee << ", seed " << seed;
      EXPECT_LE(changes.back().first, 200) << knee << ", seed " << seed;
      EXPECT_LE(changes.size(), 15U) << knee << ", seed " << seed;
    }
  }
}

TEST(Short, SizesThatAreNextToEachOtherAreTheSame) {
  Throughputs seen;
  // Of the smaller ones any would stop the search, were they compared with each other.
  for (auto [workers, rate] :
       {std::pair(100, 10'000.0), {101, 9'900.0}, {104, 9'950.0}, {150, 15'000.0}, {151, 14'900.0}})
    for (int i = 0; i < 6; ++i) seen.add(workers, rate);
  SearchOptions options{.least = 100, .most = 1000, .window = 6};
  EXPECT_EQ(short_search(seen, 151, options, efficient(0.1)), 302);
}

TEST(Short, OneSizeThatIsNotWorthItDoesNotHideALargerOne) {
  Throughputs seen;
  for (auto [workers, rate] : {std::pair(6, 600.0), {8, 600.0}, {12, 1200.0}})
    for (int i = 0; i < 6; ++i) seen.add(workers, rate);
  SearchOptions options{.least = 6, .most = 12, .window = 6};
  EXPECT_EQ(short_search(seen, 8, options, efficient(0.5)), 10);  // between 8 and the best one so far
}

TEST(Engine, GoesBackToWhatItFoundWhenOthersHaveChangedTheWorkers) {
  int searches = 0;
  Engine engine({.every = 1, .drift = 0.3, .window = 2, .patience = 5}, [&](const Throughputs&, int now) {
    ++searches;
    return now;
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(engine.after_step(8, 100), std::nullopt);
  EXPECT_TRUE(engine.settled());
  auto searched = searches;
  EXPECT_EQ(engine.after_step(6, 80), 8);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(engine.after_step(6, 80), std::nullopt);
  EXPECT_EQ(engine.after_step(6, 80), 8);  // asked again, in vain
  EXPECT_EQ(engine.after_step(8, 100), std::nullopt);
  EXPECT_TRUE(engine.seen().has(6));
  EXPECT_EQ(searches, searched);
  for (int i = 0; i < 5; ++i) engine.after_step(8, 50);  // another job now
  EXPECT_GT(searches, searched);
  EXPECT_FALSE(engine.seen().has(6));
}

TEST(Throughputs, KnowHowFarTheyMayBeOff) {
  Throughputs seen;
  seen.add(2, 90);
  EXPECT_DOUBLE_EQ(seen.at(2).error(), 0);
  seen.add(2, 110);
  seen.add(2, 100);
  EXPECT_DOUBLE_EQ(seen.at(2).rate, 100);
  EXPECT_DOUBLE_EQ(seen.at(2).error(), 10 / std::sqrt(3.0));
}

TEST(Engine, AsksForNothingWhileItWaits) {
  Engine engine({.every = 1, .patience = 5}, [](const Throughputs&, int) { return 8; });
  EXPECT_EQ(engine.after_step(4, 100), 8);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(engine.after_step(4, 100), std::nullopt);
  EXPECT_EQ(engine.after_step(4, 100), 8);  // given up, and asked again
  for (int i = 0; i < 9; ++i) EXPECT_EQ(engine.after_step(4, 100), std::nullopt) << i;
  EXPECT_EQ(engine.after_step(4, 100), 8);
  EXPECT_EQ(engine.after_step(8, 100), std::nullopt);
}

TEST(Engine, MovesToAnotherWorker) {
  auto search = [](const Throughputs& seen, int now) { return short_search(seen, now, {}, efficient(0.1)); };
  Engine here({.every = 1}, search), there({.every = 1}, search);
  for (int i = 0; i < 7; ++i) here.after_step(2, 0.1 * i);
  there.load(here.save());
  EXPECT_EQ(there.save(), here.save());
  EXPECT_THROW(there.load("1 2 3"), Failure);
}

}  // namespace
}  // namespace pliant::scale
