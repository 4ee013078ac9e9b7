#include "data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "data/files.h"

namespace pliant::data {
namespace {

using testing::HasSubstr;

constexpr auto kFashion = "/usr/share/datasets/fashion-mnist";

Bytes idx(const std::vector<std::uint32_t>& shape, const Bytes& values, std::uint8_t type = 0x08) {
  Bytes bytes{0, 0, type, static_cast<std::uint8_t>(shape.size())};
  for (auto size : shape)
    for (int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(size >> shift));
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

Bytes counting(std::size_t count) {
  Bytes bytes(count);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  return bytes;
}

std::string error_of(const Bytes& bytes) {
  auto got = decode_idx(bytes);
  return got.ok() ? "" : got.error().message;
}

TEST(DecodeIdx, ReadsOneToFourDimensions) {
  for (const auto& shape : std::vector<std::vector<std::uint32_t>>{{6}, {2, 3}, {1, 2, 3}, {3, 1, 1, 2}}) {
    auto got = decode_idx(idx(shape, counting(6))).or_throw();
    EXPECT_EQ(got.shape, shape);
    EXPECT_EQ(got.values, counting(6));
  }
}

TEST(DecodeIdx, ReadsAnEmptyArray) {
  EXPECT_EQ(decode_idx(idx({0}, {})).or_throw().shape, std::vector<std::uint32_t>{0});
  EXPECT_TRUE(decode_idx(idx({UINT32_MAX, UINT32_MAX, UINT32_MAX, 0}, {})).ok());
}

TEST(DecodeIdx, SaysWhatIsWrong) {
  EXPECT_EQ(error_of({}), "not IDX: 0 bytes");
  EXPECT_EQ(error_of({'P', 'K', 3, 4, 5}), "not IDX: does not begin with two zero bytes");
  EXPECT_EQ(error_of(idx({6}, counting(6), 0x0D)), "IDX of type 0x0d, only 0x08 (unsigned byte) is read");
  EXPECT_EQ(error_of(idx({}, counting(6))), "IDX of 0 dimensions, only 1 to 4 are read");
  EXPECT_EQ(error_of(idx({1, 1, 1, 1, 6}, counting(6))), "IDX of 5 dimensions, only 1 to 4 are read");
  EXPECT_EQ(error_of({0, 0, 8, 3, 0, 0, 0, 1}), "truncated: 16 bytes of header announced, 8 bytes there");
  EXPECT_EQ(error_of(idx({2, 3}, counting(5))), "truncated: 6 values announced, 5 there");
  EXPECT_EQ(error_of(idx({2, 3}, counting(7))), "too long: 6 values announced, 7 there");
}

TEST(DecodeIdx, HugeAnnouncementsCostNothing) {
  constexpr auto kMost = UINT32_MAX;
  EXPECT_EQ(error_of(idx({kMost}, counting(6))), "truncated: 4294967295 values announced, 6 there");
  EXPECT_EQ(error_of(idx({kMost, kMost}, {})), "truncated: 18446744065119617025 values announced, 0 there");
  EXPECT_EQ(error_of(idx({kMost, kMost, kMost, kMost}, {})), "truncated: over 2^64 values announced, 0 there");
  // 2^31 × 2^31 × 4 wraps to 0 in 64 bits.
  EXPECT_EQ(error_of(idx({1U << 31, 1U << 31, 4}, {})), "truncated: over 2^64 values announced, 0 there");
}

TEST(DecodeIdx, EveryTruncationIsAnError) {
  auto whole = idx({2, 3, 4}, counting(24));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(decode_idx(std::span(whole).first(size)).ok()) << size;
}

TEST(ReadIdx, ErrorsNameTheFile) {
  TempFolder folder;
  auto file = folder.write("cut", idx({7}, counting(6)));
  EXPECT_EQ(read_idx(file).error().message, file + ": truncated: 7 values announced, 6 there");
  auto packed = gzip(idx({6}, counting(6)));
  packed.resize(packed.size() - 9);
  auto cut = folder.write("cut.gz", packed);
  EXPECT_EQ(read_idx(cut).error().message, cut + ": gzip data cut short");
}

class Mnist : public testing::Test {
 protected:
  std::string error() const {
    auto got = read_mnist(folder_.path(), true);
    return got.ok() ? "" : got.error().message;
  }
  void images(const Bytes& bytes) const { folder_.write("train-images-idx3-ubyte", bytes); }
  void labels(const Bytes& bytes) const { folder_.write("train-labels-idx1-ubyte.gz", gzip(bytes)); }
  TempFolder folder_;
};

TEST_F(Mnist, ReadsPlainAndGzippedParts) {
  images(idx({2, 3, 4}, counting(24)));
  labels(idx({2}, {9, 0}));
  auto got = read_mnist(folder_.path(), true).or_throw();
  EXPECT_EQ(got.count, 2U);
  EXPECT_EQ(got.channels, 1U);
  EXPECT_EQ(got.height, 3U);
  EXPECT_EQ(got.width, 4U);
  EXPECT_EQ(got.pixels, counting(24));
  EXPECT_EQ(got.labels, (Bytes{9, 0}));
  EXPECT_EQ(read_mnist(folder_.path(), false).error().code, Code::not_found);
}

TEST_F(Mnist, SaysWhatIsWrong) {
  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte: not there, nor with .gz"));
  images(idx({24}, counting(24)));
  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte: 1 dimensions, expected 3"));
  images(idx({2, 3, 4}, counting(24)));
  EXPECT_THAT(error(), HasSubstr("train-labels-idx1-ubyte: not there, nor with .gz"));
  labels(idx({3}, {1, 2, 3}));
  EXPECT_THAT(error(), HasSubstr("train: 2 images but 3 labels"));
  labels(idx({2}, {9, 10}));
  EXPECT_THAT(error(), HasSubstr("train: label 10 of image 1 is out of range 0-9"));
  images(idx({0, 3, 4}, {}));
  labels(idx({0}, {}));
  EXPECT_THAT(error(), HasSubstr("train: no images"));
}

TEST(FashionMnist, DebiansPackageIsRead) {
  if (!std::filesystem::exists(kFashion)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  for (auto [train, count] : {std::pair{true, 60000U}, {false, 10000U}}) {
    auto got = read_mnist(kFashion, train).or_throw();
    EXPECT_EQ(got.count, count);
    EXPECT_EQ(got.channels, 1U);
    EXPECT_EQ(got.height, 28U);
    EXPECT_EQ(got.width, 28U);
    ASSERT_EQ(got.pixels.size(), std::size_t{count} * 28 * 28);
    std::vector<std::uint32_t> of_class(10);
    for (auto label : got.labels) ++of_class.at(label);
    EXPECT_THAT(of_class, testing::Each(count / 10));
    // The published mean of the training set is 0.2860 (of 255).
    double mean = std::accumulate(got.pixels.begin(), got.pixels.end(), 0.0) / double(got.pixels.size()) / 255;
    EXPECT_NEAR(mean, 0.286, 0.002);
  }
}

}  // namespace
}  // namespace pliant::data
