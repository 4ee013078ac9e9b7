// A digest of memory that several threads or devices can compute in parts, in any order: each word of eight bytes gives
// a part that depends on the word and on its place, and the parts are added up. Bytes behind the last whole
// word count as one that ends in zeros. Equal memory, equal digest, on every machine; it guards against faults, not
// against forgers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/hash.h"

namespace pliant {

inline constexpr std::uint64_t kPlaceStep = 0x9e3779b97f4a7c15ULL;

/// A bijection of the word for a given place: no change of a single word can get lost. It must mix in full: with less,
/// the signs of two numbers that change together would often cancel. `key` tells one piece of memory from another;
/// `place` counts words from its beginning.
constexpr std::uint64_t part_of_word(std::uint64_t word, std::uint64_t place, std::uint64_t key) {
  return mix64(word ^ (key + place * kPlaceStep));
}

/// The sum of the parts of all words in `bytes` of memory, whose first one is word `first` of the piece.
std::uint64_t parts_of_words(const void* data, std::size_t bytes, std::uint64_t first, std::uint64_t key);

}  // namespace pliant
