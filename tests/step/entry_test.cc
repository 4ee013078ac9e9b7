#include "step/entry.h"

#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <thread>

#include "collective/control.h"

namespace pliant::step {
namespace {

EntryReport entry_with(std::size_t missing) {
  EntryReport entry;
  entry.report.in_step = true;
  entry.report.step = missing + 7;
  entry.report.layout = 8;
  entry.report.digest = 9;
  entry.loop = 2;
  entry.resumes_in = 3;
  entry.words = "2 tensors of " + std::to_string(missing);
  for (std::size_t i = 0; i < missing; ++i) entry.missing.push_back(i * 0x9e3779b97f4a7c15);
  return entry;
}

void expect_same(const EntryReport& got, const EntryReport& want) {
  EXPECT_EQ(got.report.in_step, want.report.in_step);
  EXPECT_EQ(got.report.blank, want.report.blank);
  EXPECT_EQ(got.report.step, want.report.step);
  EXPECT_EQ(got.report.layout, want.report.layout);
  EXPECT_EQ(got.report.digest, want.report.digest);
  EXPECT_EQ(got.loop, want.loop);
  EXPECT_EQ(got.resumes_in, want.resumes_in);
  EXPECT_EQ(got.words, want.words);
  EXPECT_EQ(got.missing, want.missing);
}

TEST(EntryReport, MembersWithAnyNumberOfReductionsInFlightUnderstandEachOther) {
  const std::vector<std::size_t> in_flight{0, 1, 256, 257, 504, 505, 1'000, 10'000};
  auto members = static_cast<std::ptrdiff_t>(in_flight.size());
  std::vector<std::string> board(in_flight.size());
  std::barrier all(members);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < in_flight.size(); ++rank)
    threads.emplace_back([&, rank] {
      auto exchange = [&](std::string_view row) -> Result<std::vector<std::string>> {
        EXPECT_LE(row.size(), collective::kRowBytes);
        board[rank] = row;
        all.arrive_and_wait();
        auto rows = board;
        all.arrive_and_wait();
        return rows;
      };
      auto entries = exchange_entries(entry_with(in_flight[rank]), exchange).or_throw();
      ASSERT_EQ(entries.size(), in_flight.size());
      for (std::size_t other = 0; other < in_flight.size(); ++other)
        expect_same(entries[other], entry_with(in_flight[other]));
    });
  for (auto& thread : threads) thread.join();
}

TEST(EntryReport, WhatIsCutShortOrTooLongIsRefused) {
  auto rows = encode(entry_with(1'000));
  ASSERT_EQ(rows_of_entry(rows[0]).or_throw(), rows.size());
  EXPECT_TRUE(decode_entry(rows).ok());
  EXPECT_FALSE(decode_entry({}).ok());
  EXPECT_FALSE(decode_entry({rows[0]}).ok());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    auto shorter = rows, longer = rows;
    shorter[row].pop_back();
    longer[row] += "x";
    EXPECT_FALSE(decode_entry(shorter).ok()) << row;
    EXPECT_FALSE(decode_entry(longer).ok()) << row;
  }
  EXPECT_FALSE(rows_of_entry("\xff\xff\xff\xff").ok());
  EXPECT_FALSE(rows_of_entry("abc").ok());
}

}  // namespace
}  // namespace pliant::step
