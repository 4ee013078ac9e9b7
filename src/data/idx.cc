#include "data/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "data/gzip.h"

namespace pliant::data {
namespace {

constexpr std::size_t kPrefix = 4;  // two zeros, the type of a value, the number of dimensions
constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr std::uint8_t kClasses = 10;
constexpr auto kBeyond = std::numeric_limits<std::uint64_t>::max();  // a product that does not fit 64 bits

std::uint32_t big_endian(std::span<const std::uint8_t> b) {
  return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | std::uint32_t{b[3]};
}

std::uint64_t product(const std::vector<std::uint32_t>& shape) {
  if (std::ranges::count(shape, 0U) > 0) return 0;
  std::uint64_t total = 1;
  for (auto size : shape)
    if (__builtin_mul_overflow(total, std::uint64_t{size}, &total)) return kBeyond;
  return total;
}

Result<IdxArray> read_part(const std::string& path, std::size_t dimensions) {
  auto found = plain_or_gz(path);
  if (!found) return found.error();
  auto array = read_idx(found.value());
  if (array && array.value().shape.size() != dimensions)
    return malformed(
        fmt::format("{}: {} dimensions, expected {}", found.value(), array.value().shape.size(), dimensions));
  return array;
}

Status check_mnist(const std::string& stem, const IdxArray& images, const IdxArray& labels) {
  if (images.shape[0] != labels.shape[0])
    return malformed(fmt::format("{}: {} images but {} labels", stem, images.shape[0], labels.shape[0]));
  if (images.values.empty()) return malformed(fmt::format("{}: no images", stem));
  auto wrong = std::ranges::find_if(labels.values, [](auto label) { return label >= kClasses; });
  if (wrong != labels.values.end())
    return malformed(fmt::format("{}: label {} of image {} is out of range 0-{}", stem, *wrong,
                                 wrong - labels.values.begin(), kClasses - 1));
  return {};
}

}  // namespace

Result<IdxArray> decode_idx(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < kPrefix) return malformed(fmt::format("not IDX: {} bytes", bytes.size()));
  if (bytes[0] != 0 || bytes[1] != 0) return malformed("not IDX: does not begin with two zero bytes");
  if (bytes[2] != kUnsignedByte)
    return malformed(fmt::format("IDX of type {:#04x}, only {:#04x} (unsigned byte) is read", bytes[2], kUnsignedByte));
  std::size_t dimensions = bytes[3];
  if (dimensions < 1 || dimensions > 4)
    return malformed(fmt::format("IDX of {} dimensions, only 1 to 4 are read", dimensions));
  auto header = kPrefix + 4 * dimensions;
  if (bytes.size() < header)
    return malformed(fmt::format("truncated: {} bytes of header announced, {} bytes there", header, bytes.size()));
  IdxArray array;
  for (std::size_t i = 0; i < dimensions; ++i) array.shape.push_back(big_endian(bytes.subspan(kPrefix + 4 * i, 4)));
  auto values = bytes.subspan(header);
  auto announced = product(array.shape);
  if (announced != values.size())
    return malformed(fmt::format("{}: {} values announced, {} there",
                                 announced > values.size() ? "truncated" : "too long",
                                 announced == kBeyond ? "over 2^64" : std::to_string(announced), values.size()));
  array.values.assign(values.begin(), values.end());
  return array;
}

Result<IdxArray> read_idx(const std::string& path) {
  auto bytes = read_whole(path);
  if (!bytes) return bytes.error();
  auto array = decode_idx(bytes.value());
  if (!array) return Error{array.error().code, fmt::format("{}: {}", path, array.error().message)};
  return array;
}

Result<LabelledImages> read_mnist(const std::string& folder, bool train) {
  auto stem = fmt::format("{}/{}", folder, train ? "train" : "t10k");
  auto images = read_part(stem + "-images-idx3-ubyte", 3);
  if (!images) return images.error();
  auto labels = read_part(stem + "-labels-idx1-ubyte", 1);
  if (!labels) return labels.error();
  PLIANT_TRY(check_mnist(stem, images.value(), labels.value()));
  const auto& shape = images.value().shape;
  return LabelledImages{.count = shape[0],
                        .channels = 1,
                        .height = shape[1],
                        .width = shape[2],
                        .pixels = std::move(images.value().values),
                        .labels = std::move(labels.value().values)};
}

}  // namespace pliant::data
