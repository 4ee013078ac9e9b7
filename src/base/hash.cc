#include "base/hash.h"

#include <cstring>

namespace pliant {
namespace {

// Each lane multiplies the two halves of (word xor key): one multiplication per eight bytes and no dependency
// between lanes, so compilers turn it into SIMD. Keys differ per lane; a rotation per stripe makes order count.
constexpr int kLanes = 8;
constexpr std::uint64_t kKeys[kLanes] = {mix64(1), mix64(2), mix64(3), mix64(4), mix64(5), mix64(6), mix64(7), mix64(8)};

}  // namespace

std::uint64_t digest_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = combine(seed, kKeys[i]);
  std::size_t left = bytes;
  for (; left >= sizeof(lanes); at += sizeof(lanes), left -= sizeof(lanes)) {
    std::uint64_t words[kLanes];
    std::memcpy(words, at, sizeof(words));
    for (int i = 0; i < kLanes; ++i) {
      std::uint64_t keyed = words[i] ^ kKeys[i];
      std::uint64_t turned = (lanes[i] << 7) | (lanes[i] >> 57);
      lanes[i] = turned + words[i] + (keyed & 0xffffffffU) * (keyed >> 32);
    }
  }
  std::uint64_t tail[kLanes] = {};
  if (left) std::memcpy(tail, at, left);
  std::uint64_t hash = combine(seed, bytes);
  for (int i = 0; i < kLanes; ++i) hash = combine(combine(hash, lanes[i]), tail[i]);
  return hash;
}

}  // namespace pliant
