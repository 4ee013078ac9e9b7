// Memory that is made before it is needed: whoever takes it is the only one who has it.
#include "collective/spare_memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <filesystem>
#include <string>
#include <thread>

#include "base/system.h"
#include "collective/region.h"
#include "collective/team.h"
#include "net/shared_memory.h"

namespace pliant::collective {
namespace {

constexpr std::size_t kMiB = 1 << 20;

std::size_t size_of_file(int fd) {
  struct stat info {};
  fstat(fd, &info);
  return static_cast<std::size_t>(info.st_size);
}

/// Many small regions are as much for the caches as one large one.
TEST(Regions, AreCountedTogetherAsLongAsTheyLive) {
  auto all = std::make_shared<std::atomic<std::size_t>>(0);
  auto make = [&](std::size_t bytes) {
    auto region = SharedRegion::create("test", bytes, 1, 0, 2).or_throw();
    region->count_among(all);
    return region;
  };
  auto first = make(kMiB);
  EXPECT_EQ(first->bytes_in_all(), kMiB);
  auto second = make(3 * kMiB);
  EXPECT_EQ(first->bytes_in_all(), 4 * kMiB);
  second.reset();
  EXPECT_EQ(first->bytes_in_all(), kMiB);
}

TEST(SpareMemory, ServesOnce) {
  SpareMemory spare;
  spare.make("test", 8 * kMiB, {});
  auto taken = spare.take(6 * kMiB);
  EXPECT_EQ(size_of_file(taken.memory.get()), 8 * kMiB);
  EXPECT_EQ(taken.filled, 8 * kMiB);
  EXPECT_FALSE(spare.take(kMiB).memory);
}

TEST(SpareMemory, IsMadeOnceUnlessMoreIsWanted) {
  SpareMemory spare;
  spare.make("test", 8 * kMiB, {});
  spare.make("test", 4 * kMiB, {});
  spare.make("test", 16 * kMiB, {});
  EXPECT_EQ(size_of_file(spare.take(8 * kMiB).memory.get()), 16 * kMiB);
  EXPECT_FALSE(spare.take(1).memory);
}

TEST(SpareMemory, WhatIsTooSmallIsGivenBack) {
  SpareMemory spare;
  spare.make("test", 4 * kMiB, {});
  EXPECT_FALSE(spare.take(8 * kMiB).memory);
  EXPECT_FALSE(spare.take(4 * kMiB).memory);
}

TEST(SpareMemory, LeavesHalfOfTheMemoryToOthers) {
  SpareMemory spare;
  spare.make("test", available_memory() * 3 / 4, {});
  EXPECT_FALSE(spare.take(1).memory);
}

TEST(SpareMemory, IsNotMadeForThoseWhoGo) {
  SpareMemory spare;
  std::stop_source gone;
  gone.request_stop();
  spare.make("test", 8 * kMiB, gone.get_token());
  EXPECT_FALSE(spare.take(1).memory);
}

TEST(SpareMemory, CanBeTakenWhileItIsMade) {
  for (int round = 0; round < 5; ++round) {
    SpareMemory spare;
    std::thread maker([&] { spare.make("test", 256 * kMiB, {}); });
    SpareMemory::Piece taken;
    while (!taken.memory) taken = spare.take(128 * kMiB);
    ASSERT_LE(taken.filled, 256 * kMiB);
    auto missing = 128 * kMiB - std::min(taken.filled, 128 * kMiB);
    ASSERT_TRUE(net::fill_memory(taken.memory, taken.filled, missing, net::Backing::reserved).ok());
    ASSERT_TRUE(net::seal_memory(taken.memory).ok());
    maker.join();
    EXPECT_FALSE(spare.take(1).memory) << "it was taken";
  }
}

/// Were a region's slices of this rank a spare?
bool from_spare(const std::shared_ptr<Region>& region) {
  auto fd = dynamic_cast<const SharedRegion&>(*region).descriptors()[1];
  auto name = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string();
  return name.find(":spare") != std::string::npos;
}

/// One reduction of ones times `factor` in a view of `ranks`, on the memory of the view before.
struct Round {
  std::shared_ptr<Region> region;
  OperationHandle done;
};
Round reduce(Group& group, const std::shared_ptr<Region>& before, std::size_t bytes, float factor) {
  Round round;
  round.region = group.create_region("r", bytes, before ? before->input_memory() : nullptr).or_throw();
  auto* in = reinterpret_cast<float*>(round.region->input());
  for (std::size_t i = 0; i < bytes / 4; i += 512) in[i] = factor;
  round.done = group.submit({.name = "g", .count = bytes / 4, .region = round.region}).or_throw();
  group.wait(round.done).or_throw();
  return round;
}

void expect_result(const Round& round, std::size_t bytes, float value) {
  const auto* out = static_cast<const float*>(round.done->result());
  for (std::size_t i = 0; i < bytes / 4; i += 512) ASSERT_EQ(out[i], value) << i;
}

/// Three views: the first makes a spare, the second uses it, the third has none. What each has reduced stays as it is.
TEST(SpareMemory, IsNeverSharedBetweenTwoViews) {
  constexpr std::size_t kBytes = 16 * kMiB + 3 * net::kPage;
  TeamPlan first(3), second(2), third(2);
  std::barrier over(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      auto before = first.form(rank);
      auto one = reduce(*before, nullptr, kBytes, 1);
      one.region->make_spare({});
      auto after = second.form(rank);
      auto two = reduce(*after, one.region, kBytes, 10);
      EXPECT_TRUE(from_spare(two.region));
      auto last = third.form(rank);
      auto three = reduce(*last, two.region, kBytes, 100);
      EXPECT_FALSE(from_spare(three.region)) << "it was used";
      expect_result(one, kBytes, 3);
      expect_result(two, kBytes, 20);
      expect_result(three, kBytes, 200);
      over.arrive_and_wait();
    });
  threads.emplace_back([&] {
    auto group = first.form(2);
    reduce(*group, nullptr, kBytes, 1);
    group->leave();
  });
  for (auto& thread : threads) thread.join();
}

/// Stripes of huge pages, of which the last one is cut short: both results, in two views.
TEST(SpareMemory, HugeStripesHoldTheSameSums) {
  constexpr std::size_t kBytes = 129 * kMiB + 3 * net::kPage;
  TeamPlan first(2), second(2);
  std::barrier over(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      auto before = first.form(rank);
      auto one = reduce(*before, nullptr, kBytes, 1);
      auto again = before->submit({.name = "g", .count = kBytes / 4, .region = one.region}).or_throw();
      before->wait(again).or_throw();
      expect_result({one.region, again}, kBytes, 2);
      one.region->make_spare({});
      auto after = second.form(rank);
      auto two = reduce(*after, one.region, kBytes, 10);
      expect_result(one, kBytes, 2);
      expect_result(two, kBytes, 20);
      over.arrive_and_wait();
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace pliant::collective
