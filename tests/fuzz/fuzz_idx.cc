#include "data/idx.h"
#include "fuzz/fuzz.h"

namespace pliant::fuzz {

std::vector<Bytes> seeds() {
  return {
      {0, 0, 8, 1, 0, 0, 0, 2, 5, 7},
      {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4},
      {0, 0, 8, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9},
  };
}

void run(std::span<const std::uint8_t> input) {
  auto array = data::decode_idx(input);
  if (!array) return;
  const auto& [shape, values] = array.value();
  PLIANT_ASSERT(4 + 4 * shape.size() + values.size() == input.size());
  std::uint64_t product = values.empty() ? 0 : 1;
  for (std::uint64_t size : shape) product *= size;
  PLIANT_ASSERT(product == values.size());
}

}  // namespace pliant::fuzz
