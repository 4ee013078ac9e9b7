#include "step/summary.h"

#include <gtest/gtest.h>

namespace pliant::step {
namespace {

SummaryRow row(std::uint64_t step, std::uint64_t samples, std::vector<LogEntry> logs = {}) {
  SummaryRow row;
  row.step = step;
  row.samples = samples;
  row.logs = std::move(logs);
  return row;
}

TEST(Summary, ComesBackFromItsBytes) {
  auto before = row(7, 64, {{"loss", 0.5, 64}, {"accuracy", 0.9, 64}});
  before.state_digest = 0x1234567890abcdef;
  before.deal_digest = 17;
  before.times = {0.25, 0.5, 0.125, 0.0625};
  before.policies = {{17, ""}, {0, "it threw"}};
  auto after = decode_summary(encode(before)).or_throw();
  EXPECT_EQ(encode(after), encode(before));
  EXPECT_EQ(after.logs.at(1).name, "accuracy");
}

TEST(Summary, RefusesEveryTruncationAndAnythingBehindItsEnd) {
  auto bytes = encode(row(7, 64, {{"loss", 0.5, 64}}));
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode_summary(bytes.substr(0, size)).ok());
  EXPECT_FALSE(decode_summary(bytes + "x").ok());
}

TEST(Summary, FailuresTakeNoMoreRoomThanThereIs) {
  auto wordy = row(7, 64);
  wordy.policies.assign(3, {0, std::string(2 * kLongestFailure, 'x')});
  auto bytes = encode(wordy);
  auto after = decode_summary(bytes).or_throw();
  EXPECT_EQ(after.policies.at(1).failure.size(), kLongestFailure);
  EXPECT_EQ(after.policies.at(2).failure, "it failed");
  bytes.replace(bytes.find("it failed"), 9, "something");
  EXPECT_FALSE(decode_summary(bytes).ok());
}

TEST(Summary, AveragesAreWeightedBySamples) {
  auto summary =
      fold({row(3, 10, {{"loss", 1, 10}}), row(3, 30, {{"loss", 2, 30}}), row(3, 0, {{"loss", 99, 0}})}).or_throw();
  EXPECT_EQ(summary.samples, 40U);
  EXPECT_DOUBLE_EQ(summary.averages.at("loss"), 1.75);
}

TEST(Summary, ALogOfOneWorkerIsItsOwn) {
  auto summary = fold({row(3, 10, {{"only", 5, 10}}), row(3, 10)}).or_throw();
  EXPECT_DOUBLE_EQ(summary.averages.at("only"), 5);
}

TEST(Summary, SaysWhoSpeaksForWhom) {
  auto first = row(3, 10), second = row(3, 10), dead = row(3, 5);
  first.slots = {2};
  second.slots = {1};
  dead.slots = {0};
  speak_for(second, dead);
  auto summary = fold({first, second}).or_throw();
  EXPECT_EQ(summary.slots, (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(summary.speakers, (std::vector<int>{1, 1, 0}));
}

TEST(Summary, DifferentStepsAreAMismatch) {
  auto result = fold({row(3, 1), row(4, 1)});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::mismatch);
}

TEST(Summary, FromThreeWorkersOnADeviantIsNamed) {
  EXPECT_EQ(deviants({5, 5, 5}), "");
  EXPECT_EQ(deviants({5}), "");
  EXPECT_EQ(deviants({5, 6}), "ranks differ: 0 | 1");
  EXPECT_EQ(deviants({5, 6, 5}), "rank 1 deviates from ranks 0, 2");
  EXPECT_EQ(deviants({7, 5, 8, 5, 5}), "ranks 0, 2 deviate from ranks 1, 3, 4");
  for (auto differs : {&SummaryRow::state_digest, &SummaryRow::deal_digest}) {
    std::vector<SummaryRow> rows(3);
    rows[2].*differs = 1;
    auto result = fold(rows);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::diverged);
    EXPECT_NE(result.error().message.find("rank 2 deviates"), std::string::npos);
  }
}

}  // namespace
}  // namespace pliant::step
