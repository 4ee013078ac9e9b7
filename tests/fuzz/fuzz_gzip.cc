#include "data/files.h"
#include "data/gzip.h"
#include "fuzz/fuzz.h"

namespace pliant::fuzz {
namespace {

constexpr std::uint64_t kMost = 1 << 14;

}  // namespace

std::vector<Bytes> seeds() {
  auto two = data::gzip({'a', 'b', 'c'});
  for (auto byte : data::gzip(Bytes(300))) two.push_back(byte);
  return {data::gzip({}), two, data::gzip(Bytes(kMost)), data::gzip(Bytes(kMost + 1))};
}

void run(std::span<const std::uint8_t> input) {
  auto bytes = data::gunzip(input, kMost);
  if (bytes) PLIANT_ASSERT(bytes.value().size() <= kMost);
}

}  // namespace pliant::fuzz
