#include "data/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/files.h"

namespace pliant::data {
namespace {

using testing::HasSubstr;

constexpr std::size_t kPixels = 3 * 32 * 32;

/// Records whose pixels all have the value `first` + i.
Bytes records(std::size_t count, std::uint8_t label = 0, std::uint8_t first = 0) {
  Bytes bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(label);
    bytes.insert(bytes.end(), kPixels, static_cast<std::uint8_t>(first + i));
  }
  return bytes;
}

std::string error_of(const Bytes& bytes) {
  auto got = decode_cifar10(bytes);
  return got.ok() ? "" : got.error().message;
}

TEST(DecodeCifar10, ReadsRecords) {
  auto bytes = records(3, 9);
  bytes[1] = 200;                          // first pixel of the first image
  bytes[2 * (kPixels + 1) + kPixels] = 7;  // last pixel of the last one
  auto got = decode_cifar10(bytes).or_throw();
  EXPECT_EQ(got.count, 3U);
  EXPECT_EQ(got.channels, 3U);
  EXPECT_EQ(got.height, 32U);
  EXPECT_EQ(got.width, 32U);
  EXPECT_EQ(got.labels, Bytes(3, 9));
  ASSERT_EQ(got.pixels.size(), 3 * kPixels);
  EXPECT_EQ(got.pixels.front(), 200);
  EXPECT_EQ(got.pixels[kPixels], 1);
  EXPECT_EQ(got.pixels.back(), 7);
}

TEST(DecodeCifar10, SaysWhatIsWrong) {
  EXPECT_EQ(error_of({}), "no CIFAR-10 records: 0 bytes");
  auto cut = records(2);
  cut.pop_back();
  EXPECT_EQ(error_of(cut), "truncated or not CIFAR-10: 6145 bytes are no whole number of records of 3073");
  auto wrong = records(2);
  wrong[kPixels + 1] = 10;
  EXPECT_EQ(error_of(wrong), "label 10 of record 1 is out of range 0-9");
}

TEST(ReadCifar10, JoinsTheTrainingBatchesInOrder) {
  TempFolder folder;
  for (std::uint8_t i = 1; i <= 5; ++i) {
    auto bytes = records(2, i, static_cast<std::uint8_t>(10 * i));
    auto name = "data_batch_" + std::to_string(i) + ".bin";
    i % 2 ? folder.write(name, bytes) : folder.write(name + ".gz", gzip(bytes));
  }
  auto got = read_cifar10(folder.path(), true).or_throw();
  EXPECT_EQ(got.count, 10U);
  EXPECT_EQ(got.labels, (Bytes{1, 1, 2, 2, 3, 3, 4, 4, 5, 5}));
  ASSERT_EQ(got.pixels.size(), 10 * kPixels);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(got.pixels[i * kPixels], 10 * (i / 2 + 1) + i % 2);
}

TEST(ReadCifar10, FindsTheArchivesFolder) {
  TempFolder folder;
  folder.write("cifar-10-batches-bin/test_batch.bin", records(4));
  EXPECT_EQ(read_cifar10(folder.path(), false).or_throw().count, 4U);
  EXPECT_EQ(read_cifar10(folder.path() + "/cifar-10-batches-bin", false).or_throw().count, 4U);
}

TEST(ReadCifar10, ErrorsNameTheFile) {
  TempFolder folder;
  auto missing = read_cifar10(folder.path(), true);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("data_batch_1.bin: not there, nor with .gz"));
  auto file = folder.write("test_batch.bin", records(1, 99));
  EXPECT_EQ(read_cifar10(folder.path(), false).error().message, file + ": label 99 of record 0 is out of range 0-9");
}

}  // namespace
}  // namespace pliant::data
