#include "collective/plan.h"

#include <gtest/gtest.h>

#include <numeric>

namespace pliant::collective {
namespace {

TEST(Plan, EveryByteIsFinalisedByExactlyOneRank) {
  for (int ranks : {1, 2, 3, 4, 7, 9, 32})
    for (std::size_t bytes : {1UL, 4096UL, 5000UL, 300'000UL, 1UL << 20, (5UL << 20) + 12345})
      for (auto [begin, end] : {std::pair<std::size_t, std::size_t>{0, bytes}, {bytes / 3, bytes - bytes / 5}}) {
        auto stripes = stripes_for(bytes, ranks);
        std::vector<int> times(bytes, 0);
        for (int rank = 0; rank < ranks; ++rank)
          for (auto piece : pieces_of(stripes, rank, begin, end)) {
            ASSERT_LT(piece.begin, piece.end);
            for (auto i = piece.begin; i < piece.end; ++i) {
              ++times[i];
              ASSERT_EQ(stripes.owner(i / stripes.stripe), rank);
            }
          }
        for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(times[i], i >= begin && i < end) << ranks << " " << bytes;
      }
}

TEST(Plan, OwnedPagesAddUpToTheResult) {
  for (int ranks : {1, 2, 3, 5, 8, 32})
    for (std::size_t bytes : {1UL, 8192UL, 1000'000UL, 100UL << 20}) {
      auto stripes = stripes_for(bytes, ranks);
      EXPECT_EQ(stripes.bytes % kPage, 0U);
      EXPECT_EQ(stripes.stripe % kPage, 0U);
      std::size_t sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += stripes.owned(rank);
      EXPECT_EQ(sum, stripes.bytes);
    }
}

TEST(Plan, LargeResultsAreSharedEvenly) {
  for (int ranks : {2, 3, 4, 8, 32}) {
    auto stripes = stripes_for(100UL << 20, ranks);
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_NEAR(static_cast<double>(stripes.owned(rank)), static_cast<double>(stripes.bytes) / ranks, stripes.stripe);
  }
}

TEST(Plan, VeryLargeResultsOfOneHostAreStripedByHugePages) {
  for (auto [ranks, bytes] : {std::pair{2, 128UL << 20}, {3, (512UL << 20) + 12345}, {16, 1UL << 30}}) {
    auto stripes = stripes_for(bytes, ranks);
    EXPECT_EQ(stripes.stripe, net::kHugePage);
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_NEAR(static_cast<double>(stripes.owned(rank)), static_cast<double>(stripes.bytes) / ranks, stripes.stripe);
    EXPECT_LT(stripes_for(bytes, ranks, 2 * ranks).stripe, net::kHugePage) << "which travel between hosts";
  }
  EXPECT_LT(stripes_for(128UL << 20, 3).stripe, net::kHugePage) << "too few to be even";
}

TEST(Plan, HostsAreInTheOrderOfTheirFirstRank) {
  auto topology = topology_of({"b", "a", "b", "c", "a"});
  EXPECT_EQ(topology.hosts, (std::vector<std::vector<int>>{{0, 2}, {1, 4}, {3}}));
  EXPECT_EQ(topology.host_of, (std::vector<int>{0, 1, 0, 2, 1}));
  EXPECT_EQ(topology.place_of, (std::vector<int>{0, 0, 1, 0, 1}));
  EXPECT_EQ(topology.widest(), 2);
}

TEST(Plan, EveryRankFinalisesItsShareOfAStripedResult) {
  auto topology = topology_of({"a", "a", "b", "b"});
  std::vector<int> finalised(4);
  for (std::size_t stripe = 0; stripe < 400; ++stripe)
    ++finalised[static_cast<std::size_t>(carrier(stripe, final_host(stripe, topology), topology))];
  EXPECT_EQ(finalised, (std::vector<int>{100, 100, 100, 100}));
}

TEST(Plan, AllHostsHaveTheSameStripesHoweverManyRanksTheyHave) {
  for (std::size_t bytes : {1UL, 70'000UL, 3UL << 20, 100UL << 20}) {
    auto narrow = stripes_for(bytes, 1, 3 * 4), wide = stripes_for(bytes, 4, 3 * 4);
    EXPECT_EQ(narrow.stripe, wide.stripe);
    EXPECT_EQ(narrow.bytes, wide.bytes);
  }
}

TEST(Plan, PiecesApartAreStripes) {
  auto stripes = stripes_for(1 << 20, 1, 4);
  EXPECT_EQ(pieces_of(stripes, 0, 0, 1 << 20).size(), 1U);
  EXPECT_EQ(pieces_of(stripes, 0, 0, 1 << 20, true).size(), stripes.count());
}

TEST(Plan, ARingCoversTheMessage) {
  for (std::size_t bytes : {1UL, 4096UL, 300'000UL, 10UL << 20})
    for (int ranks : {1, 2, 9, 100}) {
      auto ring = ring_for(bytes, ranks);
      EXPECT_GE(ring.chunk * ring.chunks, bytes);
      EXPECT_LT(ring.chunk * (ring.chunks - 1), bytes);
      EXPECT_GE(ring.slots, 1);
      EXPECT_EQ(ring.chunk % kPage, 0U);
    }
}

}  // namespace
}  // namespace pliant::collective
