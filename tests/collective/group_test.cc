#include "collective/group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>

#include "collective/all_reduce_checks.h"
#include "collective/kernels.h"
#include "collective/team.h"

namespace pliant::collective {
namespace {

class AllReduce : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(AllReduce, EqualsTheSerialResultForEveryTypeAndOperation) {
  auto [ranks, registered] = GetParam();
  run_threads(ranks, [registered = registered](Group& group) {
    check_everything<float>(group, registered);
    check_everything<double>(group, registered);
    check_everything<Half>(group, registered);
    check_everything<BFloat16>(group, registered);
    check_everything<std::int8_t>(group, registered);
    check_everything<std::uint8_t>(group, registered);
    check_everything<std::int32_t>(group, registered);
    check_everything<std::int64_t>(group, registered);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduce, testing::Combine(testing::Range(1, 10), testing::Bool()),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) ? "Registered" : "Plain");
                         });

TEST(Group, ManyInFlightInAnyOrder) {
  constexpr int kOperations = 40;
  run_threads(3, [](Group& group) {
    auto region = group.create_region("arena", kOperations * 4096).or_throw();
    std::mt19937 shuffle(static_cast<unsigned>(group.rank()));
    for (int round = 0; round < 20; ++round) {
      std::vector<int> order(kOperations);
      for (int i = 0; i < kOperations; ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), shuffle);
      std::vector<OperationHandle> handles(kOperations);
      for (int which : order) {
        auto* in = reinterpret_cast<float*>(region->input() + which * 4096);
        for (int i = 0; i < 1000; ++i) in[i] = static_cast<float>(which + round + group.rank() + i);
        auto name = "op" + std::to_string(which);
        Request request{.name = name, .count = 1000, .region = region, .offset = which * 4096UL};
        handles[which] = group.submit(request).or_throw();
      }
      std::shuffle(order.begin(), order.end(), shuffle);
      for (int which : order) {
        group.wait(handles[which]).or_throw();
        const auto* out = static_cast<const float*>(handles[which]->result());
        for (int i = 0; i < 1000; ++i) ASSERT_EQ(out[i], 3 * (which + round + i) + 3);
      }
    }
  });
}

TEST(Group, ManyInFlightOfOneNameKeepTheirWeights) {
  constexpr int kUses = 100;
  run_threads(3, [](Group& group) {
    std::vector<float> values(kUses, static_cast<float>(group.rank()));
    std::vector<OperationHandle> handles;
    for (int use = 0; use < kUses; ++use)  // the ranks' turns to be the only one that counts
      handles.push_back(group
                            .submit({.name = "one",
                                     .op = Op::weighted_mean,
                                     .count = 1,
                                     .in = &values[static_cast<std::size_t>(use)],
                                     .out = &values[static_cast<std::size_t>(use)],
                                     .weight = use % 3 == group.rank() ? 1.0 : 0.0})
                            .or_throw());
    for (int use = 0; use < kUses; ++use) {
      group.wait(handles[static_cast<std::size_t>(use)]).or_throw();
      EXPECT_EQ(values[static_cast<std::size_t>(use)], static_cast<float>(use % 3)) << use;
    }
  });
}

TEST(Group, TheResultBeforeLastIsStillThere) {
  run_threads(2, [](Group& group) {
    auto region = group.create_region("r", 4096).or_throw();
    auto* in = reinterpret_cast<float*>(region->input());
    OperationHandle before;
    for (int use = 1; use < 50; ++use) {
      in[0] = static_cast<float>(use);
      auto now = group.submit({.name = "x", .count = 1, .region = region}).or_throw();
      group.wait(now).or_throw();
      EXPECT_EQ(*static_cast<const float*>(now->result()), 2 * use);
      if (before) {
        EXPECT_EQ(*static_cast<const float*>(before->result()), 2 * (use - 1));
      }
      before = now;
    }
  });
}

TEST(Group, WeightZeroDoesNotContributeNotEvenNonsense) {
  run_threads(3, [](Group& group) {
    std::vector<float> values(100, group.rank() == 1 ? std::nanf("") : 4.0F + static_cast<float>(group.rank()));
    Request request{.name = "x", .op = Op::weighted_mean, .count = 100, .in = values.data(), .out = values.data()};
    request.weight = group.rank() == 1 ? 0 : 1;
    group.wait(group.submit(request).or_throw()).or_throw();
    for (float value : values) ASSERT_EQ(value, 5);
  });
}

TEST(Group, SquaresAreTheSameBitsEverywhere) {
  std::atomic<std::uint64_t> first{0};
  run_threads(3, [&](Group& group) {
    constexpr std::size_t kCount = 300'000;
    auto region = group.create_region("g", kCount * 4).or_throw();
    auto* in = reinterpret_cast<float*>(region->input());
    double want = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      in[i] = std::sin(static_cast<float>(i)) * static_cast<float>(group.rank() + 1);
      double mean = 2 * std::sin(static_cast<float>(i));
      want += mean * mean;
    }
    Request request{.name = "g", .op = Op::mean, .count = kCount, .region = region, .measure = Measure::spread};
    auto operation = group.submit(request).or_throw();
    group.wait(operation).or_throw();
    EXPECT_NEAR(operation->measured().squares, want, want * 1e-5);
    // The contributions are 1/2, 1 and 3/2 times the mean.
    EXPECT_NEAR(operation->measured().spread, want * (0.25 + 1 + 2.25), want * 1e-4);
    std::uint64_t bits = 0;
    double squares = operation->measured().squares + operation->measured().spread;
    std::memcpy(&bits, &squares, 8);
    std::uint64_t none = 0;
    if (!first.compare_exchange_strong(none, bits)) {
      EXPECT_EQ(first.load(), bits);
    }
  });
}

TEST(Group, ExchangeGivesEveryRowToEverybody) {
  run_threads(4, [](Group& group) {
    for (int round = 0; round < 200; ++round) {
      auto rows = group.exchange(std::to_string(group.rank() * 1000 + round)).or_throw();
      ASSERT_EQ(rows.size(), 4U);
      for (int rank = 0; rank < 4; ++rank) ASSERT_EQ(rows[rank], std::to_string(rank * 1000 + round));
    }
  });
}

// ---- what ranks may get wrong ----

std::string failure_of(Group& group, const Request& request, Code code) {
  auto submitted = group.submit(request);
  if (!submitted.ok()) return "refused: " + submitted.error().message;
  auto status = group.wait(submitted.value());
  if (status.ok()) return "it worked";
  EXPECT_EQ(status.error().code, code) << status.error().message;
  return status.error().message;
}

TEST(Group, AnotherShapeIsAnErrorOnEveryRankAndNamesThem) {
  run_threads(3, [](Group& group) {
    std::vector<float> values(64);
    Request request{.name = "w", .count = group.rank() == 1 ? 32UL : 64UL, .in = values.data(), .out = values.data()};
    auto message = failure_of(group, request, Code::mismatch);
    EXPECT_NE(message.find("'w'"), std::string::npos) << message;
    EXPECT_NE(message.find("f32[32]"), std::string::npos) << message;
    EXPECT_NE(message.find("f32[64]"), std::string::npos) << message;
    EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
  });
}

TEST(Group, AnotherTypeOrShapeInALaterUseIsAnErrorToo) {
  run_threads(2, [](Group& group) {
    std::vector<double> values(64);
    Request request{.name = "w", .count = 64, .in = values.data(), .out = values.data()};
    for (int i = 0; i < 3; ++i) group.wait(group.submit(request).or_throw()).or_throw();
    if (group.rank() == 0) request.dtype = Dtype::i32;
    auto message = failure_of(group, request, Code::mismatch);
    EXPECT_NE(message.find("i32[64]"), std::string::npos) << message;
    EXPECT_NE(message.find("f32[64]"), std::string::npos) << message;
  });
}

TEST(Group, AShapeMayChangeIfAllChangeIt) {
  run_threads(3, [](Group& group) {
    std::vector<float> values(500);
    for (std::size_t count : {10UL, 10UL, 500UL, 500UL, 10UL, 3UL}) {
      std::fill(values.begin(), values.end(), 1.0F);
      Request request{.name = "w", .count = count, .in = values.data(), .out = values.data()};
      group.wait(group.submit(request).or_throw()).or_throw();
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], 3);
    }
  });
}

TEST(Group, DifferentNamesAreFoundInsteadOfHangingForEver) {
  GroupOptions options;
  options.deadlock_notice = std::chrono::milliseconds(300);
  run_threads(
      2,
      [](Group& group) {
        std::vector<float> values(64);
        Request request{
            .name = group.rank() ? "bias" : "weight", .count = 64, .in = values.data(), .out = values.data()};
        auto message = failure_of(group, request, Code::mismatch);
        EXPECT_NE(message.find("rank 0 waits for 'weight', which rank 1 did not submit"), std::string::npos) << message;
        EXPECT_NE(message.find("rank 1 waits for 'bias', which rank 0 did not submit"), std::string::npos) << message;
      },
      options);
}

TEST(Group, AStallNamesTheMissingRankAndTensor) {
  GroupOptions options;
  options.stall_notice = std::chrono::milliseconds(150);
  testing::internal::CaptureStderr();
  run_threads(
      3,
      [](Group& group) {
        std::vector<float> values(64);
        if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(700));  // slow input
        Request request{.name = "late", .count = 64, .in = values.data(), .out = values.data()};
        group.wait(group.submit(request).or_throw()).or_throw();
      },
      options);
  auto said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("stalled"), std::string::npos) << said;
  EXPECT_NE(said.find("'late' is not submitted by rank 1"), std::string::npos) << said;
}

TEST(Group, MistakesOfTheCallerAreRefusedAtOnce) {
  run_threads(1, [](Group& group) {
    auto region = group.create_region("r", 4096).or_throw();
    float x = 0;
    EXPECT_FALSE(group.create_region("empty", 0).ok());
    EXPECT_FALSE(group.submit({.name = "", .count = 1, .in = &x, .out = &x}).ok());
    EXPECT_FALSE(group.submit({.name = "none", .count = 0, .in = &x, .out = &x}).ok());
    EXPECT_FALSE(group.submit({.name = "far", .count = 2000, .region = region}).ok());
    EXPECT_FALSE(group.submit({.name = "skew", .count = 1, .region = region, .offset = 2}).ok());
    EXPECT_FALSE(group.submit({.name = "lost", .count = 1}).ok());
    EXPECT_FALSE(group.submit({.name = std::string(200, 'n'), .count = 1, .in = &x, .out = &x}).ok());
  });
}

TEST(Group, AfterAnOrderlyLeaveOnlyWhatIsMissingFails) {
  TeamPlan plan(2);
  std::thread other([&] {
    auto group = plan.form(1);
    std::vector<float> values(8, 1);
    group->wait(group->submit({.name = "x", .count = 8, .in = values.data(), .out = values.data()}).or_throw())
        .or_throw();
    group->leave();
  });
  auto group = plan.form(0);
  std::vector<float> values(8, 1);
  Request request{.name = "x", .count = 8, .in = values.data(), .out = values.data()};
  group->wait(group->submit(request).or_throw()).or_throw();
  EXPECT_EQ(values[0], 2);
  other.join();
  EXPECT_NE(failure_of(*group, request, Code::peer_lost).find("rank 1 has left"), std::string::npos);
  auto rows = group->exchange("row");
  ASSERT_FALSE(rows.ok());
  EXPECT_EQ(rows.error().code, Code::peer_lost);
}

TEST(Group, FencingEndsEveryWait) {
  TeamPlan plan(2);
  std::thread other([&] {
    auto group = plan.form(1);
    std::vector<float> values(8);
    auto status =
        group->wait(group->submit({.name = "x", .count = 8, .in = values.data(), .out = values.data()}).or_throw());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::peer_lost);
  });
  auto group = plan.form(0);
  group->fence({Code::aborted, "the view is over"});
  std::vector<float> values(8);
  auto status =
      group->wait(group->submit({.name = "x", .count = 8, .in = values.data(), .out = values.data()}).or_throw());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::aborted);
  EXPECT_FALSE(group->exchange("row").ok());
  group.reset();  // the other rank sees this one go
  other.join();
}

}  // namespace
}  // namespace pliant::collective
