#include "collective/hosts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>

#include "collective/all_reduce_checks.h"

namespace pliant::collective {
namespace {

using Hosts = std::vector<int>;

class BetweenHosts : public testing::TestWithParam<std::tuple<Hosts, bool>> {};

TEST_P(BetweenHosts, EqualsTheSerialResultForEveryTypeAndOperation) {
  auto [hosts, registered] = GetParam();
  run_hosts(hosts, [registered = registered](Group& group) {
    check_everything<float>(group, registered);
    check_everything<double>(group, registered);
    check_everything<Half>(group, registered);
    check_everything<BFloat16>(group, registered);
    check_everything<std::int8_t>(group, registered, false);
    check_everything<std::uint8_t>(group, registered, false);
    check_everything<std::int32_t>(group, registered, false);
    check_everything<std::int64_t>(group, registered, false);
  });
}

std::string name_of_hosts(const testing::TestParamInfo<std::tuple<Hosts, bool>>& test) {
  std::string name = "On";
  for (int host : std::get<0>(test.param)) name += std::to_string(host);
  return name + (std::get<1>(test.param) ? "Registered" : "Plain");
}

INSTANTIATE_TEST_SUITE_P(Hosts, BetweenHosts,
                         testing::Combine(testing::Values(Hosts{0, 1}, Hosts{0, 1, 2}, Hosts{0, 1, 1, 0, 1}),
                                          testing::Bool()),
                         name_of_hosts);

TEST(Hosts, EveryRankGetsTheSameBitsAndTheSameSquares) {
  constexpr std::size_t kCount = 300'001;
  std::vector<std::vector<float>> results(5);
  std::vector<double> squares(5), spreads(5), given(5);
  run_hosts({0, 1, 0, 1, 2}, [&](Group& group) {
    std::mt19937 random(static_cast<unsigned>(group.rank()));
    std::normal_distribution<float> normal;
    auto region = group.create_region("values", kCount * 4).or_throw();
    auto* in = reinterpret_cast<float*>(region->input());
    for (std::size_t i = 0; i < kCount; ++i) {
      in[i] = normal(random);
      given[group.rank()] += (group.rank() + 0.5) * static_cast<double>(in[i]) * in[i];
    }
    auto done = group
                    .submit({.name = "values",
                             .op = Op::weighted_mean,
                             .count = kCount,
                             .region = region,
                             .weight = group.rank() + 0.5,
                             .measure = Measure::spread})
                    .or_throw();
    group.wait(done).or_throw();
    const auto* out = static_cast<const float*>(done->result());
    results[group.rank()].assign(out, out + kCount);
    squares[group.rank()] = done->measured().squares;
    spreads[group.rank()] = done->measured().spread;
  });
  double sum = 0;
  for (auto value : results[0]) sum += static_cast<double>(value) * value;
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(results[rank], results[0]) << rank;
    EXPECT_EQ(squares[rank], squares[0]) << rank;
    EXPECT_EQ(spreads[rank], spreads[0]) << rank;
  }
  EXPECT_NEAR(squares[0], sum, sum * 1e-6);
  auto all_given = std::accumulate(given.begin(), given.end(), 0.0);
  EXPECT_NEAR(spreads[0], all_given, all_given * 1e-6);
}

TEST(Hosts, SomeOrAllOfAHostMayContributeNothing) {
  run_hosts({0, 0, 1, 1}, [&](Group& group) {
    for (int giver = 0; giver < 4; ++giver) {
      std::vector<std::int64_t> values{group.rank() + 1, 7};
      auto done = group
                      .submit({.name = "given",
                               .dtype = Dtype::i64,
                               .count = 2,
                               .in = values.data(),
                               .out = values.data(),
                               .weight = group.rank() == giver ? 1.0 : 0.0})
                      .or_throw();
      group.wait(done).or_throw();
      EXPECT_EQ(values, (std::vector<std::int64_t>{giver + 1, 7}));
    }
  });
}

TEST(Hosts, RowsAreExchangedAndConfirmed) {
  std::atomic<int> confirmed{0};
  run_hosts({0, 1, 1, 2}, [&](Group& group) {
    for (int turn = 0; turn < 50; ++turn) {
      auto rows = group.exchange(std::to_string(group.rank() * 1000 + turn)).or_throw();
      for (int rank = 0; rank < 4; ++rank) ASSERT_EQ(rows[rank], std::to_string(rank * 1000 + turn));
      ++confirmed;
      group.confirm().or_throw();
      EXPECT_GE(confirmed, 4 * (turn + 1));
    }
  });
}

TEST(Hosts, ManyInFlightInAnyOrder) {
  constexpr int kNames = 12;
  run_hosts({0, 1, 1}, [&](Group& group) {
    std::vector<std::vector<float>> values(kNames, std::vector<float>(70'000));
    std::vector<int> order(kNames);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(static_cast<unsigned>(group.rank()));
    for (int turn = 0; turn < 5; ++turn) {
      std::vector<OperationHandle> operations(kNames);
      std::ranges::shuffle(order, random);
      for (int name : order) {
        std::ranges::fill(values[name], static_cast<float>(name + group.rank()));
        operations[name] = group
                               .submit({.name = "n" + std::to_string(name),
                                        .count = values[name].size(),
                                        .in = values[name].data(),
                                        .out = values[name].data()})
                               .or_throw();
      }
      std::ranges::shuffle(order, random);
      for (int name : order) {
        group.wait(operations[name]).or_throw();
        for (auto value : values[name]) ASSERT_EQ(value, static_cast<float>(3 * name + 3));
      }
    }
  });
}

TEST(Hosts, AThousandNamesAndManyUsesOfOneAreInFlightAtOnce) {
  constexpr std::size_t kNames = 1000, kUses = 8, kCount = 600'000;  // several chunks, more than the ring has slots
  run_hosts({0, 1, 1}, [&](Group& group) {
    std::vector<std::vector<float>> small(kNames, std::vector<float>(100)), large(kUses, std::vector<float>(kCount));
    auto region = group.create_region("twice", kCount * 4).or_throw();
    std::fill_n(reinterpret_cast<float*>(region->input()), kCount, 1.0F);
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<OperationHandle> operations;
      auto submit = [&](const std::string& name, std::vector<float>& values, float value) {
        std::ranges::fill(values, value);
        operations.push_back(
            group.submit({.name = name, .count = values.size(), .in = values.data(), .out = values.data()}).or_throw());
      };
      for (std::size_t use = 0; use < kUses; ++use) submit("large", large[use], static_cast<float>(use + 1));
      for (int use = 0; use < 2; ++use)
        operations.push_back(group.submit({.name = "twice", .count = kCount, .region = region}).or_throw());
      for (std::size_t name = 0; name < kNames; ++name)
        submit("n" + std::to_string(name), small[name], static_cast<float>(name));
      for (const auto& operation : operations) group.wait(operation).or_throw();
      for (std::size_t use = 0; use < kUses; ++use)
        ASSERT_EQ(std::ranges::count(large[use], 3.0F * static_cast<float>(use + 1)), kCount);
      for (std::size_t name = 0; name < kNames; ++name)
        ASSERT_EQ(std::ranges::count(small[name], 3.0F * static_cast<float>(name)), 100);
      for (auto use : {kUses, kUses + 1}) {
        const auto* out = static_cast<const float*>(operations[use]->result());
        ASSERT_EQ(std::count(out, out + kCount, 3.0F), static_cast<std::ptrdiff_t>(kCount));
      }
    }
  });
}

TEST(Hosts, RegionsOfDifferentSizesAreAMismatch) {
  std::atomic<int> failed{0};
  run_hosts({0, 1}, [&](Group& group) {
    auto region = group.create_region("odd", group.rank() == 0 ? 1 << 20 : 1 << 21).or_throw();
    auto waited = group.wait(group.submit({.name = "odd", .count = 1000, .region = region}).or_throw());
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, Code::mismatch);
    EXPECT_NE(waited.error().message.find("byte 0 of the 2097152 of region 'odd'"), std::string::npos)
        << waited.error().message;
    ++failed;
  });
  EXPECT_EQ(failed, 2);
}

TEST(Hosts, MeansThatWouldNotBeExactAreRefused) {
  run_hosts({0, 1}, [&](Group& group) {
    std::vector<std::int32_t> values(10);
    Request request{.name = "whole", .dtype = Dtype::i32, .count = 10, .in = values.data(), .out = values.data()};
    request.op = Op::weighted_mean;
    auto refused = group.submit(request);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "reduction 'whole': a weighted_mean of i32 between hosts would not be exact");
    group.exchange("done").or_throw();  // nobody leaves before all have come
  });
}

TEST(Hosts, DisagreementIsNamed) {
  std::atomic<int> failed{0};
  run_hosts({0, 1}, [&](Group& group) {
    std::vector<float> values(100);
    auto done =
        group
            .submit({.name = "odd", .count = group.rank() == 0 ? 100U : 50U, .in = values.data(), .out = values.data()})
            .or_throw();
    auto waited = group.wait(done);
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, Code::mismatch);
    EXPECT_NE(waited.error().message.find("f32[50]"), std::string::npos) << waited.error().message;
    ++failed;
  });
  EXPECT_EQ(failed, 2);
}

}  // namespace
}  // namespace pliant::collective
