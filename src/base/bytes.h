// Byte counts as people write them, and a bounded reader and writer for little-endian bytes (docs/bytes.md).
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pliant {

/// "1Ki", "16Mi", "100Mi", "3Gi", "4096".
Result<std::uint64_t> parse_bytes(std::string_view text);
/// 1048576 -> "1 MiB".
std::string format_bytes(std::uint64_t bytes);

/// Appends little-endian fields to a buffer.
class ByteWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    auto at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  std::vector<std::uint8_t> take() && { return std::move(bytes_); }

 private:
  std::vector<std::uint8_t> bytes_;
};

/// Reads them back. Every read is checked; after the first failure all further reads give zeros and ok() is false.
/// Nothing is allocated beyond the bytes that are really there.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::uint8_t> bytes) : rest_(bytes) {}
  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value{};
    if (rest_.size() < sizeof(T)) {
      fail();
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  std::string get_text(std::size_t most) {
    auto length = get<std::uint32_t>();
    if (length > most || length > rest_.size()) {
      fail();
      return {};
    }
    std::string text(reinterpret_cast<const char*>(rest_.data()), length);
    rest_ = rest_.subspan(length);
    return text;
  }
  /// True if all reads succeeded and nothing is left over.
  bool finished() const { return ok_ && rest_.empty(); }
  bool ok() const { return ok_; }

 private:
  void fail() {
    ok_ = false;
    rest_ = {};
  }
  std::span<const std::uint8_t> rest_;
  bool ok_ = true;
};

/// What was written, as text, and a reader of such text.
inline std::string text_of(ByteWriter out) {
  auto bytes = std::move(out).take();
  return {bytes.begin(), bytes.end()};
}
inline ByteReader reader_of(std::string_view bytes) {
  return ByteReader({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

}  // namespace pliant
