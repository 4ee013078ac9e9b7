// What outlives a view, and what must not: results that somebody still holds, descriptors, memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "collective/hosts.h"
#include "collective/team.h"

namespace pliant::collective {
namespace {

std::ptrdiff_t descriptors() {
  auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return std::distance(begin(entries), end(entries));
}

/// Reduces in registered memory, drops group and region, and hands back what is left: the operation.
OperationHandle reduce_and_leave(Group& group) {
  auto region = group.create_region("r", 1 << 20).or_throw();
  auto count = region->bytes() / 4;
  auto* in = reinterpret_cast<float*>(region->input());
  for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 1000);
  auto operation = group.submit({.name = "g", .count = count, .region = region}).or_throw();
  group.wait(operation).or_throw();
  return operation;
}

void expect_sums(const Operation& operation, int ranks) {
  const auto* out = static_cast<const float*>(operation.result());
  for (std::size_t i = 0; i < (1 << 20) / 4; ++i) ASSERT_EQ(out[i], static_cast<float>(i % 1000 * ranks)) << i;
}

TEST(Lifetime, AResultStaysReadableForWhoeverHoldsItsOperation) {
  for (int ranks : {1, 3}) {
    std::vector<OperationHandle> held(static_cast<std::size_t>(ranks));
    run_threads(ranks, [&](Group& group) { held[group.rank()] = reduce_and_leave(group); });
    for (const auto& operation : held) expect_sums(*operation, ranks);
  }
}

TEST(Lifetime, BetweenHostsToo) {
  std::vector<OperationHandle> held(3);
  run_hosts({0, 0, 1}, [&](Group& group) { held[group.rank()] = reduce_and_leave(group); });
  for (const auto& operation : held) expect_sums(*operation, 3);
}

/// One rank's part in many reductions whose length changes each time.
void change_lengths(Group& group, int times, std::size_t elements) {
  std::vector<float> values(elements);
  for (int i = 0; i < times; ++i) {
    auto count = elements - static_cast<std::size_t>(i % 7);
    std::fill(values.begin(), values.end(), 1.0F);
    group.wait(group.submit({.name = "w", .count = count, .in = values.data(), .out = values.data()}).or_throw())
        .or_throw();
    ASSERT_EQ(values[count - 1], static_cast<float>(group.size()));
  }
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

TEST(Lifetime, ChangingThePlainLengthKeepsNeitherDescriptorsNorMemory) {
  std::barrier all(2);
  run_threads(2, [&](Group& group) {
    std::ptrdiff_t open = 0;
    std::size_t mapped = 0;
    for (int round = 0; round < 2; ++round) {
      change_lengths(group, 200, 5000);
      group.exchange("").or_throw();  // everybody has what the others sent
      all.arrive_and_wait();
      if (group.rank() == 0 && round == 0) open = descriptors(), mapped = mappings();
      if (group.rank() == 0 && round == 1) {
        EXPECT_LE(descriptors(), open + 4);
        EXPECT_LE(mappings(), mapped + 20);
      }
      all.arrive_and_wait();
    }
  });
}

TEST(Lifetime, ANameOfARegionMayBeUsedAgain) {
  run_threads(3, [](Group& group) {
    for (std::size_t round = 1; round < 20; ++round) {
      auto count = 1024 * round;
      auto region = group.create_region("r", count * 4).or_throw();
      auto* in = reinterpret_cast<float*>(region->input());
      std::fill(in, in + count, static_cast<float>(round));
      auto operation = group.submit({.name = "g", .count = count, .region = region}).or_throw();
      group.wait(operation).or_throw();
      const auto* out = static_cast<const float*>(operation->result());
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], static_cast<float>(3 * round));
    }
  });
}

}  // namespace
}  // namespace pliant::collective
