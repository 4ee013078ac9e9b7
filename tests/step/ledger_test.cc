#include "step/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "base/system.h"

namespace pliant::step {
namespace {

using Ranges = std::vector<Range>;

/// A new seed every run, or PLIANT_TEST_SEED to repeat a failure.
std::uint64_t test_seed() {
  auto fixed = env("PLIANT_TEST_SEED");
  return fixed ? std::stoull(*fixed) : random_u64();
}
#define TRACE_SEED(seed) SCOPED_TRACE("repeat with PLIANT_TEST_SEED=" + std::to_string(seed))

std::uint64_t total_of(const Ranges& ranges) {
  std::uint64_t total = 0;
  for (auto range : ranges) total += range.size();
  return total;
}

Ranges parts_in_rank_order(const Ranges& batch, const Shares& shares) {
  Ranges all;
  auto sizes = part_sizes(total_of(batch), shares);
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    auto part = part_of(batch, shares, static_cast<int>(rank));
    EXPECT_EQ(total_of(part), sizes[rank]);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Shares even(int members) { return Shares(static_cast<std::size_t>(members), kUsualShare); }

std::vector<std::uint64_t> positions_of(const Ranges& ranges) {
  std::vector<std::uint64_t> positions;
  for (auto range : ranges)
    for (auto at = range.begin; at < range.end; ++at) positions.push_back(at);
  return positions;
}

std::vector<std::uint64_t> all_of(const Order& order) {
  std::vector<std::uint64_t> samples(order.count());
  for (std::uint64_t i = 0; i < order.count(); ++i) samples[i] = order.at(i);
  return samples;
}

/// How far `seen` is from the same number everywhere, in standard deviations of the chi-square distribution.
double chi_square_sigmas(const std::vector<double>& seen) {
  double mean = 0, chi = 0;
  for (double count : seen) mean += count / double(seen.size());
  for (double count : seen) chi += (count - mean) * (count - mean) / mean;
  auto freedom = double(seen.size() - 1);
  return (chi - freedom) / std::sqrt(2 * freedom);
}

TEST(Order, IsABijection) {
  auto seed = test_seed();
  TRACE_SEED(seed);
  for (std::uint64_t count : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4096, 4097, 60000, 70001}) {
    auto samples = all_of(Order(count, seed, 3));
    std::ranges::sort(samples);
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(samples[i], i) << "of " << count;
  }
}

TEST(Order, WorksUpTo64Bits) {
  for (std::uint64_t count : {std::uint64_t{1} << 32, (std::uint64_t{1} << 62) + 1, UINT64_MAX}) {
    Order order(count, 7, 0);
    for (std::uint64_t at : {std::uint64_t{0}, std::uint64_t{1}, count / 2, count - 1}) EXPECT_LT(order.at(at), count);
  }
}

TEST(Order, WithoutShuffleIsTheIdentity) {
  Order order(1000, 7, 2, false);
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(order.at(i), i);
}

TEST(Order, IsTheSameOnEveryMachineAndInEveryRelease) {
  Order order(60000, 1, 0);
  EXPECT_EQ(order.at(0), 5609U);
  EXPECT_EQ(order.at(1), 3987U);
  EXPECT_EQ(order.at(59999), 20395U);
}

TEST(Order, DiffersBetweenEpochsAndSeeds) {
  auto seed = test_seed();
  TRACE_SEED(seed);
  constexpr std::uint64_t kCount = 10000;
  auto base = all_of(Order(kCount, seed, 0));
  for (auto other : {Order(kCount, seed, 1), Order(kCount, seed, 2), Order(kCount, seed + 1, 0),
                     Order(kCount, seed ^ (std::uint64_t{1} << 63), 0)}) {
    auto samples = all_of(other);
    int same = 0;
    for (std::uint64_t i = 0; i < kCount; ++i) same += samples[i] == base[i];
    EXPECT_LE(same, 12);  // two random orders agree in one place on average (Poisson)
  }
}

TEST(Order, NeighboursAreNotRelated) {
  auto seed = test_seed();
  TRACE_SEED(seed);
  for (std::uint64_t count : {1000, 60000}) {
    auto samples = all_of(Order(count, seed, 0));
    auto n = double(count);
    double mean = (n - 1) / 2, variance = (n * n - 1) / 12;
    for (std::uint64_t lag : {1, 2, 3, 64}) {
      double with_next = 0, with_place = 0;
      for (std::uint64_t i = 0; i + lag < count; ++i) {
        with_next += (double(samples[i]) - mean) * (double(samples[i + lag]) - mean);
        with_place += (double(samples[i]) - mean) * (double(i) - mean);
      }
      EXPECT_LT(std::abs(with_next / n / variance), 6 / std::sqrt(n)) << "lag " << lag << " of " << count;
      EXPECT_LT(std::abs(with_place / n / variance), 6 / std::sqrt(n)) << "of " << count;
    }
  }
}

TEST(Order, EveryPieceDrawsFromEverywhere) {
  auto seed = test_seed();
  TRACE_SEED(seed);
  constexpr std::uint64_t kCount = 60000, kPieces = 20;
  std::vector<double> seen(kPieces * kPieces);
  Order order(kCount, seed, 0);
  for (std::uint64_t i = 0; i < kCount; ++i) ++seen[i * kPieces / kCount * kPieces + order.at(i) * kPieces / kCount];
  EXPECT_LT(std::abs(chi_square_sigmas(seen)), 7);
}

TEST(Order, SmallOrdersAreFairOverSeeds) {
  auto seed = test_seed();
  TRACE_SEED(seed);
  for (std::uint64_t count : {2, 3, 4, 5, 7, 16, 17, 40}) {
    for (std::uint64_t position : {std::uint64_t{0}, count - 1}) {
      std::vector<double> seen(count);
      for (std::uint64_t i = 0; i < 30000; ++i) ++seen[Order(count, seed + i / 10, i % 10).at(position)];
      EXPECT_LT(chi_square_sigmas(seen), 18) << "position " << position << " of " << count;
    }
  }
}

TEST(Parts, TakeTheRemainderFirst) {
  EXPECT_EQ(part_sizes(10, even(4)), (std::vector<std::uint64_t>{3, 3, 2, 2}));
  Ranges batch{{3, 7}, {20, 26}};
  EXPECT_EQ(part_of(batch, even(4), 0), (Ranges{{3, 6}}));
  EXPECT_EQ(part_of(batch, even(4), 1), (Ranges{{6, 7}, {20, 22}}));
  EXPECT_EQ(part_of(batch, even(4), 2), (Ranges{{22, 24}}));
  EXPECT_EQ(part_of(batch, even(4), 3), (Ranges{{24, 26}}));
}

TEST(Parts, MayBeEmpty) {
  EXPECT_EQ(part_of({{5, 7}}, even(3), 1), (Ranges{{6, 7}}));
  EXPECT_EQ(part_of({{5, 7}}, even(3), 2), Ranges{});
  EXPECT_EQ(part_of({}, even(3), 0), Ranges{});
}

TEST(Parts, FollowTheShares) {
  using Sizes = std::vector<std::uint64_t>;
  EXPECT_EQ(part_sizes(21, {1000, 250, 2000}), (Sizes{6, 2, 13}));
  EXPECT_EQ(part_sizes(10, {1000, 0, 1000}), (Sizes{5, 0, 5}));
  EXPECT_EQ(part_sizes(7, {0, 0}), (Sizes{4, 3}));
  EXPECT_EQ(part_sizes(0, {5, 1}), (Sizes{0, 0}));
  auto most = std::numeric_limits<std::uint32_t>::max();
  auto many = std::uint64_t{1} << 62;
  EXPECT_EQ(part_sizes(many, {most, most}), (Sizes{many / 2, many / 2}));
}

TEST(Parts, AreTheBatchInRankOrder) {
  auto seed = test_seed();
  TRACE_SEED(seed);
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 2000; ++turn) {
    Ranges batch;
    std::uint64_t at = 0;
    for (auto pieces = random() % 5; pieces > 0; --pieces) {
      at += random() % 4;
      auto size = 1 + random() % 12;
      batch.push_back({at, at + size});
      at += size;
    }
    Shares shares(1 + random() % 9);
    for (auto& share : shares) share = random() % 3 ? static_cast<std::uint32_t>(random() % 4000) : kUsualShare;
    ASSERT_EQ(positions_of(parts_in_rank_order(batch, shares)), positions_of(batch)) << shares.size();
  }
}

TEST(Ledger, EndsAnEpochWithAPartialBatch) {
  Ledger ledger(10);
  EXPECT_EQ(ledger.next(4), (Ranges{{0, 4}}));
  EXPECT_EQ(ledger.next(4), (Ranges{{0, 4}})) << "next() does not change the ledger";
  ledger.commit(4);
  EXPECT_EQ(ledger.left(), 6U);
  ledger.commit(4);
  EXPECT_EQ(ledger.next(4), (Ranges{{8, 10}}));
  EXPECT_EQ(ledger.epoch(), 0U);
  ledger.commit(4);
  EXPECT_EQ(ledger.epoch(), 1U);
  EXPECT_EQ(ledger.left(), 10U);
  EXPECT_EQ(ledger.next(4), (Ranges{{0, 4}}));
}

TEST(Ledger, RollsOverWhenTheLastBatchIsWhole) {
  Ledger ledger(8);
  ledger.commit(4);
  EXPECT_EQ(ledger.epoch(), 0U);
  ledger.commit(4);
  EXPECT_EQ(ledger.epoch(), 1U);
  ledger.commit(100);
  EXPECT_EQ(ledger.epoch(), 2U);
  EXPECT_EQ(ledger.left(), 8U);
}

TEST(Ledger, LeasesReturnedRangesFirst) {
  Ledger ledger(20);
  ledger.commit(12);
  ledger.give_back({{9, 10}, {2, 4}, {5, 5}});
  EXPECT_EQ(ledger.left(), 11U);
  EXPECT_EQ(ledger.next(2), (Ranges{{2, 4}}));
  EXPECT_EQ(ledger.next(5), (Ranges{{2, 4}, {9, 10}, {12, 14}}));
  ledger.commit(1);
  EXPECT_EQ(ledger.next(5), (Ranges{{3, 4}, {9, 10}, {12, 15}}));
  ledger.give_back({{2, 3}, {10, 11}});
  EXPECT_EQ(ledger.next(4), (Ranges{{2, 4}, {9, 11}})) << "neighbours are merged";
}

TEST(Ledger, EpochEndsOnlyWhenReturnedRangesAreUsed) {
  Ledger ledger(10);
  ledger.commit(9);
  ledger.give_back({{0, 2}});
  ledger.commit(2);
  EXPECT_EQ(ledger.epoch(), 0U);
  EXPECT_EQ(ledger.next(5), (Ranges{{9, 10}}));
  ledger.commit(5);
  EXPECT_EQ(ledger.epoch(), 1U);
  EXPECT_EQ(ledger, [] {
    Ledger other(10);
    other.commit(10);
    return other;
  }());
}

TEST(Ledger, EqualHistoriesInAnyOrderOfGivingBackAreEqual) {
  Ledger one(100), two(100);
  one.commit(50), two.commit(50);
  one.give_back({{1, 3}, {40, 50}}), one.give_back({{3, 7}});
  two.give_back({{3, 7}}), two.give_back({{40, 50}, {1, 3}});
  EXPECT_EQ(one, two);
}

TEST(LedgerDeathTest, GivingBackTwiceIsABug) {
  Ledger ledger(10);
  ledger.commit(6);
  ledger.give_back({{2, 4}});
  EXPECT_DEATH(ledger.give_back({{3, 5}}), "bug");
  EXPECT_DEATH(ledger.give_back({{5, 7}}), "bug") << "never leased";
}

TEST(Ledger, ComesBackFromItsSnapshot) {
  Ledger ledger(20);
  EXPECT_EQ(Ledger::restore(ledger.snapshot()).or_throw(), ledger);
  ledger.commit(20), ledger.commit(12);
  ledger.give_back({{9, 10}, {2, 4}});
  EXPECT_EQ(ledger.snapshot(), (Ledger::Snapshot{20, 1, 12, {{2, 4}, {9, 10}}}));
  EXPECT_EQ(Ledger::restore(ledger.snapshot()).or_throw(), ledger);
  EXPECT_EQ(Ledger::restore({}).or_throw(), Ledger(0));
}

TEST(Ledger, ImpossibleSnapshotsAreRefused) {
  for (const auto& snapshot : std::vector<Ledger::Snapshot>{
           {10, 0, 11, {}},               // beyond the end
           {10, 0, 10, {}},               // an epoch that should have ended
           {10, 0, 6, {{5, 7}}},          // never leased
           {10, 0, 6, {{3, 3}}},          // empty
           {10, 0, 6, {{4, 3}}},          // backwards
           {10, 0, 6, {{2, 4}, {3, 5}}},  // overlapping
           {10, 0, 6, {{2, 4}, {4, 5}}},  // not merged
           {10, 0, 6, {{4, 5}, {1, 2}}},  // not sorted
           {0, 0, 0, {{0, UINT64_MAX}}},  // of nothing
       }) {
    auto restored = Ledger::restore(snapshot);
    ASSERT_FALSE(restored.ok());
    EXPECT_EQ(restored.error().code, Code::invalid);
  }
}

/// Runs epochs with random batch sizes, member counts and members that lose their part, and counts every sample.
void run_random_job(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto below = [&](std::uint64_t limit) { return random() % limit; };
  const auto samples = 1 + below(300);
  Ledger ledger(samples);
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    Order order(samples, seed, epoch);
    std::vector<int> used(samples);
    while (ledger.epoch() == epoch) {
      auto batch = below(1 + below(2 * samples));
      Shares shares(1 + below(7));
      for (auto& share : shares) share = static_cast<std::uint32_t>(below(5)) * 500;
      auto ranges = ledger.next(batch);
      auto left = ledger.left();
      ASSERT_EQ(total_of(ranges), std::min(batch, left));
      ASSERT_EQ(positions_of(parts_in_rank_order(ranges, shares)), positions_of(ranges));
      const bool last = total_of(ranges) == left;
      ledger.commit(batch);
      Ranges lost;
      for (std::size_t rank = 0; rank < shares.size(); ++rank) {
        auto part = part_of(ranges, shares, static_cast<int>(rank));
        if (!last && below(4) == 0)
          lost.insert(lost.end(), part.begin(), part.end());
        else
          for (auto position : positions_of(part)) ++used[order.at(position)];
      }
      ledger.give_back(lost);
      if (!last) {
        ASSERT_EQ(ledger.left(), left - total_of(ranges) + total_of(lost));
      }
    }
    ASSERT_EQ(ledger.epoch(), epoch + 1);
    for (std::uint64_t i = 0; i < samples; ++i) ASSERT_EQ(used[i], 1) << "sample " << i << " of epoch " << epoch;
  }
}

TEST(Ledger, EverySampleOncePerEpochWhateverHappens) {
  auto first = test_seed();
  for (std::uint64_t i = 0; i < 300 && !testing::Test::HasFailure(); ++i) {
    TRACE_SEED(first + i);
    run_random_job(first + i);
  }
}

}  // namespace
}  // namespace pliant::step
