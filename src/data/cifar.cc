#include "data/cifar.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <utility>

#include "data/gzip.h"

namespace pliant::data {
namespace {

constexpr std::uint32_t kChannels = 3;
constexpr std::uint32_t kSide = 32;
constexpr std::size_t kPixels = std::size_t{kChannels} * kSide * kSide;
constexpr std::size_t kRecord = 1 + kPixels;
constexpr std::uint8_t kCifarClasses = 10;

Result<LabelledImages> read_batch(const std::string& path) {
  auto found = plain_or_gz(path);
  if (!found) return found.error();
  auto bytes = read_whole(found.value());
  if (!bytes) return bytes.error();
  auto batch = decode_cifar10(bytes.value());
  if (!batch) return Error{batch.error().code, fmt::format("{}: {}", found.value(), batch.error().message)};
  return batch;
}

void append(LabelledImages& all, const LabelledImages& more) {
  all.count += more.count;
  all.pixels.insert(all.pixels.end(), more.pixels.begin(), more.pixels.end());
  all.labels.insert(all.labels.end(), more.labels.begin(), more.labels.end());
}

/// The archive unpacks into a folder of its own; both that folder and the one around it may be named.
std::string batches_in(const std::string& folder) {
  auto inner = folder + "/cifar-10-batches-bin";
  struct stat found {};
  return ::stat(inner.c_str(), &found) == 0 && S_ISDIR(found.st_mode) ? inner : folder;
}

}  // namespace

Result<LabelledImages> decode_cifar10(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return malformed("no CIFAR-10 records: 0 bytes");
  if (bytes.size() % kRecord != 0)
    return malformed(
        fmt::format("truncated or not CIFAR-10: {} bytes are no whole number of records of {}", bytes.size(), kRecord));
  auto count = bytes.size() / kRecord;
  // All labels first: a file of the right size by chance is not copied before it is known to be wrong.
  for (std::size_t i = 0; i < count; ++i)
    if (bytes[i * kRecord] >= kCifarClasses)
      return malformed(
          fmt::format("label {} of record {} is out of range 0-{}", bytes[i * kRecord], i, kCifarClasses - 1));
  LabelledImages images{
      .count = static_cast<std::uint32_t>(count), .channels = kChannels, .height = kSide, .width = kSide};
  images.labels.reserve(count);
  images.pixels.reserve(count * kPixels);
  for (std::size_t i = 0; i < count; ++i) {
    auto record = bytes.subspan(i * kRecord, kRecord);
    images.labels.push_back(record[0]);
    images.pixels.insert(images.pixels.end(), record.begin() + 1, record.end());
  }
  return images;
}

Result<LabelledImages> read_cifar10(const std::string& folder, bool train) {
  auto batches = batches_in(folder);
  if (!train) return read_batch(batches + "/test_batch.bin");
  LabelledImages all{.channels = kChannels, .height = kSide, .width = kSide};
  for (int i = 1; i <= 5; ++i) {
    auto batch = read_batch(fmt::format("{}/data_batch_{}.bin", batches, i));
    if (!batch) return batch.error();
    append(all, batch.value());
  }
  return all;
}

}  // namespace pliant::data
