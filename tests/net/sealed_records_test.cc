#include "net/sealed_records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "net/paired_keys.h"

namespace pliant::net {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes some_bytes(std::size_t size, unsigned seed = 1) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

/// What a record of any size holds.
Result<Bytes> opened(RecordOpener& opener, const Bytes& record) {
  std::span<const std::uint8_t> rest = record;
  auto length = RecordOpener::length_in(rest.first<RecordKey::kHead>(), 1 << 20);
  if (!length.ok()) return length.error();
  Bytes plain(length.value() - RecordKey::kTag);
  auto status = opener.open(rest.subspan(RecordKey::kHead, length.value()), reinterpret_cast<std::byte*>(plain.data()));
  if (!status.ok()) return status.error();
  return plain;
}

RecordOpener right_opener() { return RecordOpener(traffic_secret(kLeftSends)); }

TEST(SealedRecords, WhatIsSealedOpensInOrder) {
  LeftSealer left;
  auto right = right_opener();
  for (std::size_t size : {0, 1, 15, 16, 17, 1000, 65536, 300'000}) {
    auto plain = some_bytes(size, static_cast<unsigned>(size));
    auto record = left.record_of(plain);
    EXPECT_EQ(record.size(), RecordKey::kHead + size + RecordKey::kTag);
    EXPECT_EQ(opened(right, record).or_throw(), plain);
  }
}

TEST(SealedRecords, PartsAreOneText) {
  RecordSealer sealer(traffic_secret(kLeftSends));
  auto one = some_bytes(100), two = some_bytes(5000, 2);
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(one)), {}, std::as_bytes(std::span(two))};
  Bytes out(RecordSealer::size_of(5100));
  sealer.seal(parts, out);
  auto right = right_opener();
  auto both = one;
  both.insert(both.end(), two.begin(), two.end());
  EXPECT_EQ(opened(right, out).or_throw(), both);
}

TEST(SealedRecords, TheSameTextNeverLooksTheSame) {
  LeftSealer left;
  Bytes plain(64, 7);
  auto first = left.record_of(plain), second = left.record_of(plain);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::search(first.begin(), first.end(), plain.begin(), plain.begin() + 16), first.end());
}

TEST(SealedRecords, EveryFlippedBitIsNoticed) {
  LeftSealer left;
  auto record = left.record_of(some_bytes(100));
  for (std::size_t bit = 0; bit < 8 * record.size(); ++bit) {
    auto altered = record;
    altered[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    if (bit < 8 * RecordKey::kHead) {  // another length: as if there were more of it, or less
      std::uint32_t length = 0;
      std::memcpy(&length, altered.data(), sizeof(length));
      if (length > 4096) continue;
      altered.resize(RecordKey::kHead + length);
    }
    auto right = right_opener();
    auto result = opened(right, altered);
    ASSERT_FALSE(result.ok()) << "bit " << bit;
    EXPECT_EQ(result.error().code, Code::protocol);
  }
}

TEST(SealedRecords, OtherPlacesOtherConnectionsAndOtherDirectionsAreRefused) {
  LeftSealer left;
  auto first = left.record_of(some_bytes(50)), second = left.record_of(some_bytes(50, 2));
  auto skipped = right_opener();
  EXPECT_FALSE(opened(skipped, second).ok());
  auto repeated = right_opener();
  EXPECT_TRUE(opened(repeated, first).ok());
  EXPECT_FALSE(opened(repeated, first).ok());
  RecordOpener back(traffic_secret(kRightSends));
  EXPECT_FALSE(opened(back, first).ok()) << "sent back to whoever sent it";
  RecordOpener elsewhere(traffic_secret(3));
  EXPECT_FALSE(opened(elsewhere, first).ok());
}

TEST(SealedRecords, KeysAreReplacedOnBothSides) {
  LeftSealer left;
  auto right = right_opener();
  auto plain = some_bytes(8);
  Bytes last;
  for (std::uint64_t i = 0; i < RecordKey::kRecordsPerKey + 3; ++i) {
    last = left.record_of(plain);
    ASSERT_EQ(opened(right, last).or_throw(), plain) << i;
  }
}

TEST(SealedRecords, ASecretThatWasMovedIsErased) {
  auto secret = traffic_secret(5);
  auto other = std::move(secret);
  EXPECT_EQ(other.bytes()[7], 5);
  EXPECT_EQ(secret.bytes()[7], 0);  // NOLINT(bugprone-use-after-move)
}

TEST(RecordSplitter, AnyPiecesGiveTheSameRecords) {
  LeftSealer left;
  std::vector<Bytes> bodies;
  Bytes stream;
  for (std::size_t size : {0, 3, 1000, 40'000, 1, 64}) {
    auto record = left.record_of(some_bytes(size));
    bodies.emplace_back(record.begin() + RecordKey::kHead, record.end());
    stream.insert(stream.end(), record.begin(), record.end());
  }
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    RecordSplitter splitter(40'000);
    std::vector<Bytes> seen;
    auto note = [&](std::span<const std::uint8_t> body) {
      seen.emplace_back(body.begin(), body.end());
      return Status();
    };
    std::span<const std::uint8_t> rest = stream;
    std::size_t most = 1 + random() % (round < 100 ? 20 : 50'000);
    while (!rest.empty()) {
      auto part = rest.first(std::min<std::size_t>(rest.size(), 1 + random() % most));
      auto room = splitter.room();
      if (!room.empty() && random() % 2) {  // straight to where it belongs
        part = part.first(std::min(part.size(), room.size()));
        std::ranges::copy(part, room.begin());
        splitter.commit(part.size());
        ASSERT_TRUE(splitter.feed({}, note).ok());
      } else {
        ASSERT_TRUE(splitter.feed(part, note).ok());
      }
      rest = rest.subspan(part.size());
    }
    ASSERT_EQ(seen, bodies);
    EXPECT_EQ(splitter.missing(), RecordKey::kHead);
  }
}

TEST(RecordSplitter, AHeadThatIsNoneIsRefusedBeforeAnythingIsKept) {
  for (std::uint32_t length : {0U, 15U, 117U, UINT32_MAX}) {
    Bytes head(4);
    std::memcpy(head.data(), &length, sizeof(length));
    for (std::size_t at_a_time : {1, 4}) {
      RecordSplitter splitter(100);
      Status status;
      for (std::size_t at = 0; at < head.size() && status.ok(); at += at_a_time)
        status = splitter.feed({head.data() + at, at_a_time}, [](auto) { return Status(); });
      ASSERT_FALSE(status.ok()) << length;
      EXPECT_EQ(status.error().code, Code::protocol);
    }
  }
}

}  // namespace
}  // namespace pliant::net
