#include "net/sealed_records.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace pliant::net {
namespace {

constexpr std::size_t kKeySize = 16;

using Derived = std::array<std::uint8_t, TrafficSecret::kSize>;

/// HMAC-SHA256 of a label: values under different labels say nothing of each other, nor of the secret.
Derived derived(const TrafficSecret& secret, std::string_view label) {
  Derived value{};
  unsigned int length = 0;
  const auto* done = HMAC(EVP_sha256(), secret.bytes().data(), static_cast<int>(secret.bytes().size()),
                          reinterpret_cast<const unsigned char*>(label.data()), label.size(), value.data(), &length);
  PLIANT_ASSERT(done && length == value.size());
  return value;
}

}  // namespace

// ---- keys ----

TrafficSecret::TrafficSecret(std::span<const std::uint8_t, kSize> bytes) { std::ranges::copy(bytes, bytes_.begin()); }

TrafficSecret::TrafficSecret(TrafficSecret&& other) noexcept : bytes_(other.bytes_) {
  OPENSSL_cleanse(other.bytes_.data(), kSize);
}

TrafficSecret& TrafficSecret::operator=(TrafficSecret&& other) noexcept {
  if (this == &other) return *this;
  bytes_ = other.bytes_;
  OPENSSL_cleanse(other.bytes_.data(), kSize);
  return *this;
}

TrafficSecret::~TrafficSecret() { OPENSSL_cleanse(bytes_.data(), kSize); }

void RecordKey::CipherDeleter::operator()(evp_cipher_ctx_st* cipher) const { EVP_CIPHER_CTX_free(cipher); }

RecordKey::RecordKey(TrafficSecret secret, Use use)
    : cipher_(EVP_CIPHER_CTX_new()), secret_(std::move(secret)), use_(use) {
  PLIANT_ASSERT(cipher_);
  derive();
}

RecordKey::~RecordKey() { OPENSSL_cleanse(start_.data(), start_.size()); }

void RecordKey::derive() {
  auto key = derived(secret_, "pliant record key");
  auto start = derived(secret_, "pliant record nonce");
  std::copy_n(start.begin(), start_.size(), start_.begin());
  static_assert(kKeySize <= sizeof(key));
  int done = EVP_CipherInit_ex(cipher_.get(), EVP_aes_128_gcm(), nullptr, key.data(), nullptr, use_ == Use::seal);
  PLIANT_ASSERT(done == 1);
  OPENSSL_cleanse(key.data(), key.size());
  OPENSSL_cleanse(start.data(), start.size());
}

void RecordKey::begin(std::uint32_t length) {
  auto nonce = start_;
  for (std::size_t i = 0; i < sizeof(count_); ++i)
    nonce[nonce.size() - 1 - i] ^= static_cast<std::uint8_t>(count_ >> 8 * i);
  int done = EVP_CipherInit_ex(cipher_.get(), nullptr, nullptr, nullptr, nonce.data(), -1);
  PLIANT_ASSERT(done == 1);
  std::array<std::uint8_t, kHead> head{};
  std::memcpy(head.data(), &length, sizeof(length));
  int size = 0;
  done = EVP_CipherUpdate(cipher_.get(), nullptr, &size, head.data(), static_cast<int>(head.size()));
  PLIANT_ASSERT(done == 1);
}

void RecordKey::advance() {
  if (++count_ % kRecordsPerKey != 0) return;
  auto next = derived(secret_, "pliant next records");
  secret_ = TrafficSecret(next);
  OPENSSL_cleanse(next.data(), next.size());
  derive();
}

// ---- sealing ----

void RecordSealer::seal(Parts parts, std::span<std::uint8_t> out) {
  PLIANT_ASSERT(out.size() >= size_of(0) && out.size() <= INT32_MAX);
  auto length = static_cast<std::uint32_t>(out.size() - kHead);
  std::memcpy(out.data(), &length, sizeof(length));
  begin(length);
  auto at = kHead;
  int size = 0;
  for (auto part : parts) {
    if (part.empty()) continue;
    PLIANT_ASSERT(part.size() <= out.size() - kTag - at);
    int done = EVP_CipherUpdate(cipher_.get(), out.data() + at, &size,
                                reinterpret_cast<const std::uint8_t*>(part.data()), static_cast<int>(part.size()));
    PLIANT_ASSERT(done == 1 && static_cast<std::size_t>(size) == part.size());
    at += part.size();
  }
  PLIANT_ASSERT(at + kTag == out.size());
  int done = EVP_CipherFinal_ex(cipher_.get(), out.data() + at, &size);
  PLIANT_ASSERT(done == 1 && size == 0);
  done = EVP_CIPHER_CTX_ctrl(cipher_.get(), EVP_CTRL_AEAD_GET_TAG, static_cast<int>(kTag), out.data() + at);
  PLIANT_ASSERT(done == 1);
  advance();
}

// ---- opening ----

Result<std::size_t> RecordOpener::length_in(std::span<const std::uint8_t, kHead> head, std::size_t most) {
  std::uint32_t length = 0;
  std::memcpy(&length, head.data(), sizeof(length));
  if (length < kTag || length - kTag > most) return Error{Code::protocol, fmt::format("a record of {} bytes", length)};
  return static_cast<std::size_t>(length);
}

Status RecordOpener::open(std::span<const std::uint8_t> body, std::byte* plain) {
  PLIANT_ASSERT(body.size() >= kTag && body.size() <= INT32_MAX);
  auto text = body.first(body.size() - kTag);
  std::array<std::uint8_t, kTag> tag{};
  std::ranges::copy(body.last(kTag), tag.begin());
  begin(static_cast<std::uint32_t>(body.size()));
  int size = 0;
  if (!text.empty()) {
    int done = EVP_CipherUpdate(cipher_.get(), reinterpret_cast<std::uint8_t*>(plain), &size, text.data(),
                                static_cast<int>(text.size()));
    PLIANT_ASSERT(done == 1 && static_cast<std::size_t>(size) == text.size());
  }
  int done = EVP_CIPHER_CTX_ctrl(cipher_.get(), EVP_CTRL_AEAD_SET_TAG, static_cast<int>(kTag), tag.data());
  PLIANT_ASSERT(done == 1);
  std::array<std::uint8_t, kTag> nothing{};
  if (EVP_CipherFinal_ex(cipher_.get(), nothing.data(), &size) != 1)
    return Error{Code::protocol, "a record that was altered on its way, or belongs elsewhere"};
  advance();
  return {};
}

}  // namespace pliant::net
