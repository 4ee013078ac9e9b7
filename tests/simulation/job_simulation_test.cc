#include <gtest/gtest.h>

#include <algorithm>

#include "simulation/job.h"
#include "simulation/plants.h"

namespace pliant::sim {
namespace {

TEST(JobSimulation, TheSameSeedIsTheSameJob) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    auto once = simulate_job({seed, true}), again = simulate_job({seed, true});
    EXPECT_EQ(once.trace, again.trace) << "seed " << seed;
    EXPECT_EQ(once.failure, "") << "seed " << seed;
  }
}

/// A trace changes nothing.
TEST(JobSimulation, IsTheSameWithoutATrace) {
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    EXPECT_EQ(simulate_job({seed, false}).events, simulate_job({seed, true}).events) << "seed " << seed;
}

TEST(JobSimulation, MeetsFaultsOfEveryKind) {
  std::map<std::string, int> kinds;
  std::uint64_t steps = 0, salvaged = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    auto outcome = simulate_job({seed, false});
    EXPECT_EQ(outcome.failure, "") << "seed " << seed;
    for (const auto& [kind, count] : outcome.kinds) kinds[kind] += count;
    steps += outcome.steps;
    salvaged += outcome.salvaged;
  }
  EXPECT_GT(steps, 10'000U);
  EXPECT_GT(salvaged, 10U) << "what the dead had given is used, and the records say so";
  for (const char* kind : {"kill", "kill2", "term", "stop", "resize", "join-kill", "switch-kill", "sigstop",
                           "coordinator", "cut", "cut-kill", "store", "aimed", "lag"})
    EXPECT_GE(kinds[kind], 20) << kind;
}

/// The short form of job_simulation --coverage.
TEST(JobSimulation, FaultsMeetWorkersInEveryStateOfAStep) {
  Coverage coverage;
  for (std::uint64_t seed = 0; seed < 500; ++seed) simulate_job({seed, false, std::nullopt, &coverage});
  EXPECT_LE(coverage.gaps(1).size(), 6U) << coverage.text();
}

/// The short form of job_simulation --plants: some of those that few seeds are enough for.
TEST(JobSimulation, KnownMistakesAreFound) {
  for (const char* name : {"same-epoch", "view-time-limit", "first-loop", "batch-at-once", "lease-recomputed",
                           "failure-is-finished", "unused-lost", "salvage-unrecorded"}) {
    const auto* plant = plant_named(name);
    ASSERT_TRUE(plant) << name;
    EXPECT_TRUE(find_plant(*plant, {.first = 0, .seeds = 500, .jobs = 2})) << name << ": " << plant->what;
  }
}

/// Every program by itself, so that a failure says which.
class Program : public testing::TestWithParam<Script::Kind> {};

TEST_P(Program, ComesToItsEnd) {
  auto seeds = GetParam() == Script::Kind::grows ? 20U : 150U;
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    EXPECT_EQ(simulate_job({seed, false, GetParam()}).failure, "") << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(All, Program,
                         testing::Values(Script::Kind::usual, Script::Kind::two_loops, Script::Kind::left_by_break,
                                         Script::Kind::in_flight, Script::Kind::batches, Script::Kind::long_evaluation,
                                         Script::Kind::throws, Script::Kind::measures, Script::Kind::grows),
                         [](const auto& parameter) {
                           std::string name(name_of(parameter.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pliant::sim
