// PLIANT_SIM_SEED=n replays one run with all that happens in it (PLIANT_SIM_STORE=1: one with a store);
// PLIANT_SIM_RUNS=n sets how many are tried.
#include "membership/simulation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace pliant::membership::sim {
namespace {

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

constexpr auto kNoSeed = UINT64_MAX;
std::uint64_t seed_to_replay() { return number_from("PLIANT_SIM_SEED", kNoSeed); }
std::uint64_t runs() { return number_from("PLIANT_SIM_RUNS", 500); }

std::string last_lines(const std::string& text, int count) {
  auto at = text.size();
  while (count-- >= 0 && at != 0 && at != std::string::npos) at = text.rfind('\n', at - 1);
  return at == std::string::npos ? text : text.substr(at);
}

/// The same run again, with its last events in words.
std::string story_of(Options options) {
  options.trace = true;
  const auto outcome = simulate(options);
  return fmt::format("{}\n\nPLIANT_SIM_SEED={}{}: {}", last_lines(outcome.trace, 80), options.seed,
                     options.store ? " PLIANT_SIM_STORE=1" : "", outcome.failure);
}

/// With a store a job may shrink to one worker, and end with it: fewer of them go on.
void try_world(std::uint64_t first_seed, bool store = false) {
  if (seed_to_replay() != kNoSeed) GTEST_SKIP() << "only one seed is asked for";
  std::uint64_t steps = 0, views = 0, alive = 0, events = 0, count = 0;
  for (auto seed = first_seed; seed < runs(); seed += 2, ++count) {
    const auto outcome = simulate({.seed = seed, .store = store});
    ASSERT_EQ(outcome.failure, "") << story_of({.seed = seed, .store = store});
    steps += outcome.steps, views += outcome.views, alive += outcome.alive ? 1 : 0, events += outcome.events;
  }
  fmt::print("{} runs: {} events, {} stable steps, {} views, {} jobs went on to the end\n", count, events, steps, views,
             alive);
  EXPECT_GE(alive * 10, count * (store ? 5 : 7)) << "most runs should test that the job goes on";
}

TEST(Simulation, OnOneHostAllInvariantsHold) { try_world(0); }
TEST(Simulation, AcrossHostsAllInvariantsHold) { try_world(1); }

TEST(Simulation, AcrossHostsWithAStoreAllInvariantsHold) { try_world(1, true); }

TEST(Simulation, ASeedIsOneRun) {
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    EXPECT_EQ(simulate({.seed = seed}).digest, simulate({.seed = seed, .trace = true}).digest);
  EXPECT_NE(simulate({.seed = 0}).digest, simulate({.seed = 2}).digest);
}

TEST(Simulation, ReplaysOneSeed) {
  const auto seed = seed_to_replay();
  if (seed == kNoSeed) GTEST_SKIP() << "PLIANT_SIM_SEED is not set";
  const auto outcome = simulate({.seed = seed, .store = number_from("PLIANT_SIM_STORE", 0) != 0, .trace = true});
  fmt::print("{}\n", outcome.trace);
  EXPECT_EQ(outcome.failure, "");
}

// The simulation can fail: each of these mistakes is found, and not just by a job that stands still.

class Mistakes : public testing::TestWithParam<std::pair<const char*, Mutation>> {};

TEST_P(Mistakes, AreFound) {
  if (seed_to_replay() != kNoSeed) GTEST_SKIP() << "only one seed is asked for";
  const auto most = std::max<std::uint64_t>(runs(), 500);
  for (std::uint64_t seed = 0; seed < most; ++seed) {
    const auto mutation = GetParam().second;
    const auto outcome = simulate({.seed = seed, .store = mutation == Mutation::fickle_store, .mutation = mutation});
    if (outcome.failure.empty() || outcome.failure.find("no progress") != std::string::npos) continue;
    fmt::print("run {}: {}\n", seed, outcome.failure);
    return;
  }
  FAIL() << "not found in " << most << " runs";
}

INSTANTIATE_TEST_SUITE_P(Simulation, Mistakes,
                         testing::Values(std::pair("LowerTerms", Mutation::lower_terms),
                                         std::pair("Minority", Mutation::minority),
                                         std::pair("NoFence", Mutation::no_fence),
                                         std::pair("MixedContributors", Mutation::mixed),
                                         std::pair("ForgetsWhatItStored", Mutation::forget_stored),
                                         std::pair("SwitchesTooEarly", Mutation::hasty_switch),
                                         std::pair("ActsUnconfirmed", Mutation::unconfirmed),
                                         std::pair("HasAFickleStore", Mutation::fickle_store)),
                         [](const auto& known) { return known.param.first; });

}  // namespace
}  // namespace pliant::membership::sim
