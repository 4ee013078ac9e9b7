#include "base/word_digest.h"

#include <cstring>

#include "base/system.h"

namespace pliant {
namespace {

constexpr std::size_t kBytes = sizeof(std::uint64_t);
constexpr std::size_t kSums = 8;  // independent sums, so that multiplications overlap
constexpr std::size_t kRound = kSums * kBytes;

std::uint64_t sum_narrow(const unsigned char* at, std::size_t blocks, std::uint64_t key) {
  std::uint64_t sums[kSums] = {};
  for (; blocks > 0; --blocks, at += kRound, key += kSums * kPlaceStep) {
    std::uint64_t words[kSums];
    std::memcpy(words, at, kRound);
    for (std::size_t i = 0; i < kSums; ++i) sums[i] += part_of_word(words[i], i, key);
  }
  std::uint64_t all = 0;
  for (auto sum : sums) all += sum;
  return all;
}

#if defined(__x86_64__)
using Sums = std::uint64_t __attribute__((vector_size(kRound)));

/// The same with all lanes in one register.
__attribute__((target("avx512f,avx512dq"))) std::uint64_t sum_wide(const unsigned char* at, std::size_t blocks,
                                                                   std::uint64_t key) {
  Sums keys, sum = {};
  for (std::size_t i = 0; i < kSums; ++i) keys[i] = key + i * kPlaceStep;
  for (; blocks > 0; --blocks, at += kRound, keys += kSums * kPlaceStep) {
    Sums words;
    std::memcpy(&words, at, kRound);
    Sums x = (words ^ keys) + kPlaceStep;  // mix64, written for lanes
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    sum += x ^ (x >> 31);
  }
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < kSums; ++i) all += sum[i];
  return all;
}
#endif

}  // namespace

std::uint64_t parts_of_words(const void* data, std::size_t bytes, std::uint64_t first, std::uint64_t key) {
  const auto* at = static_cast<const unsigned char*>(data);
  const auto blocks = bytes / kRound;
  key += first * kPlaceStep;
#if defined(__x86_64__)
  auto sum = (has_wide_words() ? sum_wide : sum_narrow)(at, blocks, key);
#else
  auto sum = sum_narrow(at, blocks, key);
#endif
  for (std::size_t done = blocks * kRound; done < bytes; done += kBytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, at + done, bytes - done < kBytes ? bytes - done : kBytes);
    sum += part_of_word(word, done / kBytes, key);
  }
  return sum;
}

}  // namespace pliant
