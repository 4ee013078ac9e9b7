#include "apps/pliant/slurm_fleet.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "apps/pliant/retry.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

struct Folder {
  const std::string path = fmt::format("{}/pliant-fleet-{}", testing::TempDir(), getpid());
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

SlurmEntry running_at(std::uint64_t id, const std::string& node) {
  SlurmEntry entry;
  entry.id = id;
  entry.state = SlurmState::running;
  entry.word = "RUNNING";
  entry.node = node;
  return entry;
}

TEST(SlurmFleet, AnotherHeadGoesOnWithItsNameAndNumbers) {
  Folder folder;
  SlurmFleet first(folder.path, "j", 1s);
  EXPECT_FALSE(first.taken_up());
  first.add(12, 1s);
  first.add(7, 1s);
  ASSERT_TRUE(first.write_note().ok());
  SlurmFleet second(folder.path, "j", 1s);
  EXPECT_TRUE(second.taken_up());
  EXPECT_EQ(second.name(), first.name());
  ASSERT_EQ(second.shown().size(), 2U);
  EXPECT_EQ(second.shown()[0].id, 7U);
  EXPECT_EQ(second.outputs().size(), 2U);
}

TEST(SlurmFleet, WhoIsNotNamedSeveralTimesIsGone) {
  Folder folder;
  SlurmFleet fleet(folder.path, "j", 1s);
  fleet.add(1, 1s);
  fleet.add(2, 1s);
  fleet.add(3, 5s);
  for (int i = 0; i < SlurmFleet::kMostMissed; ++i) {
    EXPECT_TRUE(fleet.take_missing().empty());
    fleet.expect_all(2s);
    fleet.find(2)->meet(running_at(2, "n"), 3s);
  }
  auto gone = fleet.take_missing();
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_EQ(gone[0].id, 1U);
  EXPECT_TRUE(fleet.find(3)) << "it was submitted after the queue was asked";
}

TEST(SlurmFleet, ThoseThatWaitAreTheLeastUsefulThenTheNewest) {
  Folder folder;
  SlurmFleet fleet(folder.path, "j", 1s);
  for (std::uint64_t id : {1, 2, 3}) fleet.add(id, 1s);
  fleet.find(1)->meet(running_at(1, "a"), 2s);
  fleet.find(3)->meet(running_at(3, "b"), 2s);
  EXPECT_EQ(fleet.useful(), 3U);
  EXPECT_EQ(fleet.running(), 2U);
  for (std::uint64_t id : {2, 3, 1}) {
    EXPECT_EQ(fleet.least_useful().id, id);
    fleet.least_useful().released = true;
  }
  EXPECT_EQ(fleet.useful(), 0U);
  EXPECT_EQ(fleet.running(), 0U);
}

TEST(SlurmFleet, WhatIsQueuedAgainHasLostItsHostOnce) {
  FleetJob job;
  job.id = 4;
  EXPECT_FALSE(job.meet(running_at(4, "a"), 1s));
  EXPECT_EQ(job.age(3s), Nanos(2s));
  SlurmEntry waits;
  waits.id = 4;
  waits.word = "PENDING";
  waits.restarts = 1;
  auto lost = job.meet(waits, 4s);
  ASSERT_TRUE(lost);
  EXPECT_EQ(*lost, slurm_host("a", 4));
  EXPECT_EQ(job.age(5s), Nanos(0));
  EXPECT_FALSE(job.meet(waits, 5s));
}

TEST(Retry, PausesDoubleUntilItWorks) {
  Retry retry;
  EXPECT_FALSE(retry.waits(0s));
  Nanos now = 0s;
  for (auto pause : {1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s}) {
    retry.later(now);
    EXPECT_TRUE(retry.waits(now + pause - 1ns));
    EXPECT_FALSE(retry.waits(now + pause));
  }
  EXPECT_TRUE(retry.is_to_be_said());
  EXPECT_FALSE(retry.is_to_be_said());
  retry.good();
  EXPECT_FALSE(retry.failed());
  EXPECT_TRUE(retry.is_to_be_said());
}

}  // namespace
}  // namespace pliant::cli
