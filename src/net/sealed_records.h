// What protects the bytes of a connection after its handshake (handshake.h): records that are encrypted and
// authenticated with AES-128-GCM, under keys of this connection and direction alone. docs/bytes.md has the layout:
//
//   length of what follows (32 bits), ciphertext, tag (16 bytes)
//
// Records are numbered from 0, and the number is part of the nonce. So a record that was altered, left out, repeated,
// moved, or taken from another connection or from the other direction does not open. After 2^16 records each side
// replaces its key by one that is derived from it, and erases the old one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

struct evp_cipher_ctx_st;

namespace pliant::net {

/// What the keys of one direction are derived from. It is erased when it is moved from or destroyed.
class TrafficSecret {
 public:
  static constexpr std::size_t kSize = 32;
  explicit TrafficSecret(std::span<const std::uint8_t, kSize> bytes);
  TrafficSecret(TrafficSecret&& other) noexcept;
  TrafficSecret& operator=(TrafficSecret&& other) noexcept;
  TrafficSecret(const TrafficSecret&) = delete;
  TrafficSecret& operator=(const TrafficSecret&) = delete;
  ~TrafficSecret();

  std::span<const std::uint8_t, kSize> bytes() const { return bytes_; }

 private:
  std::array<std::uint8_t, kSize> bytes_{};
};

/// Of one end of a connection: what the other end has as `receive` is `send` here.
struct ConnectionKeys {
  TrafficSecret send, receive;
};

/// What the sealing and the opening side have in common. Erases its keys.
class RecordKey {
 public:
  static constexpr std::size_t kHead = 4;  ///< bytes of a record's length
  static constexpr std::size_t kTag = 16;
  static constexpr std::uint64_t kRecordsPerKey = 1 << 16;

  RecordKey(RecordKey&&) noexcept = default;
  RecordKey& operator=(RecordKey&&) noexcept = default;
  RecordKey(const RecordKey&) = delete;
  RecordKey& operator=(const RecordKey&) = delete;
  ~RecordKey();

 protected:
  struct CipherDeleter {
    void operator()(evp_cipher_ctx_st* cipher) const;
  };
  enum class Use { seal, open };

  RecordKey(TrafficSecret secret, Use use);
  /// Prepares the cipher for the record after `count_` others.
  void begin(std::uint32_t length);
  /// That record is done.
  void advance();

  std::unique_ptr<evp_cipher_ctx_st, CipherDeleter> cipher_;

 private:
  void derive();

  TrafficSecret secret_;
  Use use_;
  std::array<std::uint8_t, 12> start_{};  // the nonce of record 0
  std::uint64_t count_ = 0;
};

class RecordSealer : public RecordKey {
 public:
  using Parts = std::span<const std::span<const std::byte>>;

  explicit RecordSealer(TrafficSecret secret) : RecordKey(std::move(secret), Use::seal) {}
  /// Bytes of a record that holds so many.
  static constexpr std::size_t size_of(std::size_t plain) { return kHead + plain + kTag; }
  /// Writes one record that holds all parts, one behind the other. REQUIRES: `out` has just the size of that.
  void seal(Parts parts, std::span<std::uint8_t> out);
};

class RecordOpener : public RecordKey {
 public:
  explicit RecordOpener(TrafficSecret secret) : RecordKey(std::move(secret), Use::open) {}
  /// How many bytes follow a record's head. Code::protocol if those hold no tag, or more than `most` bytes beside it.
  static Result<std::size_t> length_in(std::span<const std::uint8_t, kHead> head, std::size_t most);
  /// Opens what followed a head, into `plain`, which has room for kTag bytes less. Code::protocol if it is not the next
  /// record of this connection; what `plain` holds then must not be used, and nothing that comes later opens.
  Status open(std::span<const std::uint8_t> body, std::byte* plain);
};

/// Cuts a stream of bytes into the bodies of records, as they come. Keeps what it has of one that is not complete, and
/// nothing else.
class RecordSplitter {
 public:
  /// Records hold at most `most` bytes beside their tags.
  explicit RecordSplitter(std::size_t most) : most_(most) {}

  /// Calls `on_record(body)` for each record that is complete, until it returns an error. Code::protocol for a head
  /// that is none.
  template <class OnRecord>
  Status feed(std::span<const std::uint8_t> bytes, OnRecord on_record);
  /// How many bytes are missing until the record that was begun, or its head, is complete.
  std::size_t missing() const { return wanted_ - filled_; }
  /// Where these belong, if they are received elsewhere than through feed(); empty if nothing was begun.
  std::span<std::uint8_t> room() { return std::span(begun_).subspan(filled_, filled_ > 0 ? missing() : 0); }
  /// The first `size` bytes of room() are there now; feed(), even of nothing, goes on from that.
  void commit(std::size_t size) { filled_ += size; }

 private:
  std::size_t most_;
  std::vector<std::uint8_t> begun_ = std::vector<std::uint8_t>(RecordKey::kHead);  // has room for `wanted_`
  std::size_t filled_ = 0;
  std::size_t wanted_ = RecordKey::kHead;  // the head's size, or the whole record's once that is there
};

template <class OnRecord>
Status RecordSplitter::feed(std::span<const std::uint8_t> bytes, OnRecord on_record) {
  for (;;) {
    if (filled_ == 0 && bytes.size() >= RecordKey::kHead) {  // perhaps it need not be kept
      auto length = RecordOpener::length_in(bytes.first<RecordKey::kHead>(), most_);
      if (!length.ok()) return length.error();
      if (bytes.size() - RecordKey::kHead >= length.value()) {
        PLIANT_TRY(on_record(bytes.subspan(RecordKey::kHead, length.value())));
        bytes = bytes.subspan(RecordKey::kHead + length.value());
        continue;
      }
    }
    auto part = bytes.first(std::min(bytes.size(), missing()));
    std::ranges::copy(part, begun_.begin() + static_cast<std::ptrdiff_t>(filled_));
    commit(part.size());
    bytes = bytes.subspan(part.size());
    if (missing() > 0) return {};
    if (wanted_ == RecordKey::kHead) {  // its length is known now
      auto length =
          RecordOpener::length_in(std::span<const std::uint8_t>(begun_).template first<RecordKey::kHead>(), most_);
      if (!length.ok()) return length.error();
      wanted_ += length.value();
      begun_.resize(std::max(begun_.size(), wanted_));
      continue;
    }
    auto body = std::span<const std::uint8_t>(begun_).first(wanted_).subspan(RecordKey::kHead);
    filled_ = 0;
    wanted_ = RecordKey::kHead;
    PLIANT_TRY(on_record(body));
  }
}

}  // namespace pliant::net
