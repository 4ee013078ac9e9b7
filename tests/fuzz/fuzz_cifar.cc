#include "data/cifar.h"
#include "fuzz/fuzz.h"

namespace pliant::fuzz {
namespace {

constexpr std::size_t kPixels = 3 * 32 * 32;

}  // namespace

std::vector<Bytes> seeds() {
  Bytes two(2 * (kPixels + 1), 9);
  two[0] = 0;
  return {Bytes(kPixels + 1), two};
}

void run(std::span<const std::uint8_t> input) {
  auto images = data::decode_cifar10(input);
  if (!images) return;
  PLIANT_ASSERT(images.value().count > 0);
  PLIANT_ASSERT(images.value().labels.size() == images.value().count);
  PLIANT_ASSERT(images.value().pixels.size() == kPixels * images.value().count);
  for (auto label : images.value().labels) PLIANT_ASSERT(label < 10);
}

}  // namespace pliant::fuzz
