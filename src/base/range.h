// A range of positions in an epoch's shuffled order: what samples are leased, returned and recorded by.
#pragma once

#include <cstdint>

namespace pliant {

/// Positions [begin, end).
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

}  // namespace pliant
