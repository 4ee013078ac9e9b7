#include "base/word_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

namespace pliant {
namespace {

std::vector<unsigned char> some(std::size_t bytes) {
  std::vector<unsigned char> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<unsigned char>(i * 7);
  return made;
}

TEST(WordDigest, NeverChangesBetweenBuilds) {
  auto bytes = some(1000);  // golden values: whoever computes parts elsewhere must get the same
  EXPECT_EQ(part_of_word(0, 0, 0), mix64(0));
  EXPECT_EQ(part_of_word(1, 2, 3), 10987583248141275951U);
  EXPECT_EQ(parts_of_words(bytes.data(), bytes.size(), 0, 42), 7047051919649401664U);
}

TEST(WordDigest, IsTheSumOfItsWordsWhoeverAddsThem) {
  auto bytes = some(1003);
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    sum += part_of_word(word, at / 8, 42);
  }
  EXPECT_EQ(parts_of_words(bytes.data(), bytes.size(), 0, 42), sum);
  for (std::size_t words : {1UL, 7UL, 8UL, 60UL, 125UL}) {
    auto cut = words * 8;
    EXPECT_EQ(
        parts_of_words(bytes.data(), cut, 0, 42) + parts_of_words(bytes.data() + cut, bytes.size() - cut, words, 42),
        sum)
        << words;
  }
  EXPECT_EQ(parts_of_words(bytes.data(), 0, 5, 42), 0U);
}

TEST(WordDigest, TwoSignsThatChangeTogetherDoNotCancel) {
  std::vector<double> numbers(200, 1.5);
  auto before = parts_of_words(numbers.data(), numbers.size() * 8, 0, 42);
  for (std::size_t a = 0; a < numbers.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      numbers[a] = -numbers[a], numbers[b] = -numbers[b];
      ASSERT_NE(parts_of_words(numbers.data(), numbers.size() * 8, 0, 42), before) << a << " " << b;
      numbers[a] = -numbers[a], numbers[b] = -numbers[b];
    }
}

TEST(WordDigest, EveryBitPlaceAndKeyCount) {
  auto bytes = some(200);
  std::set<std::uint64_t> seen{parts_of_words(bytes.data(), bytes.size(), 0, 42)};
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
    seen.insert(parts_of_words(bytes.data(), bytes.size(), 0, 42));
    bytes[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
  }
  EXPECT_EQ(seen.size(), bytes.size() * 8 + 1);
  std::vector<std::uint64_t> a(64), b(64);
  a[0] = b[32] = 5;
  a[32] = b[0] = 9;
  EXPECT_NE(parts_of_words(a.data(), 512, 0, 42), parts_of_words(b.data(), 512, 0, 42));
  EXPECT_NE(parts_of_words(a.data(), 512, 0, 42), parts_of_words(a.data(), 512, 1, 42));
  EXPECT_NE(parts_of_words(a.data(), 512, 0, 42), parts_of_words(a.data(), 512, 0, 43));
}

}  // namespace
}  // namespace pliant
