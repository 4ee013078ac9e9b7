#include "base/hash.h"

#include <cstring>

namespace pliant {
namespace {

// Eight independent lanes keep the multiplier busy: about eight bytes per cycle. Each step is a bijection of the lane
// for a given word and of the word for a given lane, so that no change of a single word can get lost.
constexpr int kLanes = 8;
constexpr std::uint64_t kOdd = 0x9fb21c651e98df25ULL;

}  // namespace

std::uint64_t digest_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = combine(seed, static_cast<std::uint64_t>(i));
  std::size_t left = bytes;
  for (; left >= sizeof(lanes); at += sizeof(lanes), left -= sizeof(lanes)) {
    std::uint64_t words[kLanes];
    std::memcpy(words, at, sizeof(words));
    for (int i = 0; i < kLanes; ++i) {
      std::uint64_t product = (lanes[i] ^ words[i]) * kOdd;
      lanes[i] = product ^ (product >> 32);
    }
  }
  std::uint64_t tail[kLanes] = {};
  if (left) std::memcpy(tail, at, left);
  std::uint64_t hash = combine(seed, bytes);
  for (int i = 0; i < kLanes; ++i) hash = combine(combine(hash, lanes[i]), tail[i]);
  return hash;
}

}  // namespace pliant
