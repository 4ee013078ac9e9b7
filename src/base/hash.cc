#include "base/hash.h"

#include <cstring>

#include "base/system.h"

namespace pliant {
namespace {

// Eight independent lanes keep the multiplier busy: about eight bytes per cycle. Each step is a bijection of the lane
// for a given word and of the word for a given lane, so that no change of a single word can get lost.
constexpr int kLanes = 8;
constexpr std::uint64_t kOdd = 0x9fb21c651e98df25ULL;
constexpr std::size_t kBlock = kLanes * sizeof(std::uint64_t);

void mix_blocks(std::uint64_t* lanes, const unsigned char* at, std::size_t blocks) {
  for (; blocks > 0; --blocks, at += kBlock) {
    std::uint64_t words[kLanes];
    std::memcpy(words, at, kBlock);
    for (int i = 0; i < kLanes; ++i) {
      std::uint64_t product = (lanes[i] ^ words[i]) * kOdd;
      lanes[i] = product ^ (product >> 32);
    }
  }
}

#if defined(__x86_64__)
using WideLanes = std::uint64_t __attribute__((vector_size(kBlock)));

/// The same with all lanes in one register: some processors need a third of the time.
__attribute__((target("avx512f,avx512dq"))) void mix_blocks_wide(std::uint64_t* lanes, const unsigned char* at,
                                                                 std::size_t blocks) {
  WideLanes mixed;
  std::memcpy(&mixed, lanes, kBlock);
  for (; blocks > 0; --blocks, at += kBlock) {
    WideLanes words;
    std::memcpy(&words, at, kBlock);
    WideLanes product = (mixed ^ words) * kOdd;
    mixed = product ^ (product >> 32);
  }
  std::memcpy(lanes, &mixed, kBlock);
}
#endif

}  // namespace

std::uint64_t digest_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = combine(seed, static_cast<std::uint64_t>(i));
  auto blocks = bytes / kBlock;
#if defined(__x86_64__)
  (has_wide_words() ? mix_blocks_wide : mix_blocks)(lanes, at, blocks);
#else
  mix_blocks(lanes, at, blocks);
#endif
  at += blocks * kBlock;
  auto left = bytes - blocks * kBlock;
  std::uint64_t tail[kLanes] = {};
  if (left) std::memcpy(tail, at, left);
  std::uint64_t hash = combine(seed, bytes);
  for (int i = 0; i < kLanes; ++i) hash = combine(combine(hash, lanes[i]), tail[i]);
  return hash;
}

}  // namespace pliant
