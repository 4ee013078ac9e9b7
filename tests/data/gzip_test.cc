#include "data/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/hash.h"
#include "data/files.h"

namespace pliant::data {
namespace {

using testing::HasSubstr;

Bytes noise(std::size_t count, std::uint64_t seed = 1) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(combine(seed, i));
  return bytes;
}

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

TEST(ReadWhole, ReadsPlainFilesOfAnySize) {
  TempFolder folder;
  for (std::size_t size : {0, 1, 2, 3, 131071, 131072, 131073, 1 << 20}) {
    auto bytes = noise(size);
    EXPECT_EQ(read_whole(folder.write("plain", bytes)).or_throw(), bytes) << size;
  }
}

TEST(ReadWhole, InflatesByContentWhateverTheName) {
  TempFolder folder;
  for (std::size_t size : {0, 1, 131072, 1 << 20}) {
    auto bytes = noise(size);
    EXPECT_EQ(read_whole(folder.write("no-suffix", gzip(bytes))).or_throw(), bytes) << size;
  }
  EXPECT_EQ(read_whole(folder.write("plain.gz", noise(10))).or_throw(), noise(10));
}

TEST(ReadWhole, InflatesSeveralMembers) {
  TempFolder folder;
  auto file = folder.write("two", gzip(noise(70000, 1)) + gzip({}) + gzip(noise(70000, 2)));
  EXPECT_EQ(read_whole(file).or_throw(), noise(70000, 1) + noise(70000, 2));
}

TEST(ReadWhole, NamesAFileThatIsNotThere) {
  auto got = read_whole("/nowhere/at-all");
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, Code::not_found);
  EXPECT_THAT(got.error().message, HasSubstr("/nowhere/at-all"));
}

TEST(ReadWhole, RefusesAFolder) {
  TempFolder folder;
  auto got = read_whole(folder.path());
  ASSERT_FALSE(got.ok());
  EXPECT_THAT(got.error().message, HasSubstr(folder.path()));
}

TEST(ReadWhole, LimitCountsPlainBytesAndInflatedBytesAlike) {
  TempFolder folder;
  for (const auto& file : {folder.write("plain", noise(1000)), folder.write("packed", gzip(noise(1000)))}) {
    EXPECT_TRUE(read_whole(file, 1000).ok());
    auto got = read_whole(file, 999);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().message, file + ": more than 999 bytes");
  }
}

TEST(ReadWhole, StopsABombAtTheLimit) {
  TempFolder folder;
  Bytes bomb;
  auto layer = gzip(Bytes(64 << 20));                                                 // about 64 KiB packed
  for (int i = 0; i < 256; ++i) bomb.insert(bomb.end(), layer.begin(), layer.end());  // 16 GiB unpacked
  auto file = folder.write("bomb.gz", bomb);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  auto got = read_whole(file, 16 << 20);
  getrusage(RUSAGE_SELF, &after);
  ASSERT_FALSE(got.ok());
  EXPECT_THAT(got.error().message, HasSubstr("more than 16777216 bytes"));
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024) << "KiB of memory";
}

TEST(Gunzip, EveryTruncationIsAnError) {
  auto packed = gzip(noise(500));
  for (std::size_t size = 0; size < packed.size(); ++size)
    EXPECT_FALSE(gunzip(std::span(packed).first(size), 1 << 20).ok()) << size;
  EXPECT_TRUE(gunzip(packed, 1 << 20).ok());
}

TEST(Gunzip, EveryFlippedBitOfTheDataIsAnErrorOrHarmless) {
  const auto plain = noise(300);
  const auto packed = gzip(plain);
  for (std::size_t bit = 0; bit < packed.size() * 8; ++bit) {
    auto damaged = packed;
    damaged[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    auto got = gunzip(damaged, 1 << 20);
    EXPECT_TRUE(!got.ok() || got.value() == plain) << "bit " << bit;  // harmless: e.g. the header's time stamp
  }
}

TEST(Gunzip, RefusesWhatFollowsTheLastMember) {
  auto got = gunzip(gzip(noise(10)) + noise(10), 1 << 20);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, Code::protocol);
  EXPECT_THAT(got.error().message, HasSubstr("gzip data corrupt"));
}

TEST(Gunzip, SaysCutShort) {
  auto packed = gzip(noise(500));
  packed.pop_back();
  auto got = gunzip(packed, 1 << 20);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().message, "gzip data cut short");
}

TEST(PlainOrGz, PrefersThePlainFile) {
  TempFolder folder;
  auto path = folder.path() + "/x";
  EXPECT_EQ(plain_or_gz(path).error().code, Code::not_found);
  folder.write("x.gz", {});
  EXPECT_EQ(plain_or_gz(path).or_throw(), path + ".gz");
  folder.write("x", {});
  EXPECT_EQ(plain_or_gz(path).or_throw(), path);
}

}  // namespace
}  // namespace pliant::data
