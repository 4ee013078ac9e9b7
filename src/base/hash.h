// Mixing and hashing that never changes between builds: digests and shuffles depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pliant {

/// A bijection on 64 bits with full avalanche (the finaliser known from splitmix64).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr std::uint64_t combine(std::uint64_t seed, std::uint64_t value) { return mix64(seed ^ mix64(value)); }

/// FNV-1a over the bytes, then mixed: for names.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix64(hash);
}

/// A fast 64-bit digest of memory (several bytes per cycle). Equal bytes, equal digest, on every machine;
/// it guards against faults, not against forgers.
std::uint64_t digest_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 0);

}  // namespace pliant
