#include "base/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

namespace pliant {
namespace {

TEST(Metrics, GaugesAreReplacedAndCountersAddUp) {
  Metrics metrics;
  metrics.set("rate", 0.5);
  metrics.set("rate", 0.25);
  metrics.add("steps");
  metrics.add("steps", 2);
  metrics.add("steps", -7);  // never less
  EXPECT_EQ(metrics.text("p_"), "# TYPE p_rate gauge\np_rate 0.25\n# TYPE p_steps counter\np_steps 3\n");
}

TEST(Metrics, WhatIsNotKnownIsNotShown) {
  Metrics metrics;
  metrics.set("noise", std::nan(""));
  EXPECT_TRUE(metrics.snapshot().empty());
  metrics.set("noise", 4);
  EXPECT_EQ(metrics.snapshot().at("noise").value, 4);
  metrics.set("noise", std::nan(""));
  EXPECT_TRUE(metrics.snapshot().empty());
}

TEST(Metrics, ThreadsMayCountTogether) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) metrics.add("all");
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(metrics.snapshot().at("all").value, 4000);
}

}  // namespace
}  // namespace pliant
