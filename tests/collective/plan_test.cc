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
