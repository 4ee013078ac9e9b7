#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace pliant {
namespace {

TEST(Hash, DigestsNeverChangeBetweenBuilds) {
  // Golden values: samplers, streams and records of old runs depend on them.
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafU);
  EXPECT_EQ(mix64(1), 0x910a2dec89025cc1U);
  std::vector<unsigned char> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7);
  EXPECT_EQ(digest_bytes(bytes.data(), bytes.size()), 7470176554556821582U);
}

TEST(Hash, EveryBitAndTheLengthCount) {
  std::vector<unsigned char> bytes(200);
  std::set<std::uint64_t> seen{digest_bytes(bytes.data(), bytes.size())};
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
    seen.insert(digest_bytes(bytes.data(), bytes.size()));
    bytes[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
  }
  EXPECT_EQ(seen.size(), bytes.size() * 8 + 1);
  for (std::size_t size = 0; size < bytes.size(); ++size) seen.insert(digest_bytes(bytes.data(), size));
  EXPECT_EQ(seen.size(), bytes.size() * 9 + 1);
}

TEST(Hash, OrderCounts) {
  std::vector<std::uint64_t> a(64), b(64);
  a[0] = b[32] = 5;  // the same words in the same lanes, in other stripes
  a[32] = b[0] = 9;
  EXPECT_NE(digest_bytes(a.data(), 512), digest_bytes(b.data(), 512));
  EXPECT_NE(digest_bytes(a.data(), 512, 1), digest_bytes(a.data(), 512, 2));
}

}  // namespace
}  // namespace pliant
