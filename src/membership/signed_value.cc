#include "membership/signed_value.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/bytes.h"

namespace pliant::membership {
namespace {

constexpr std::array<char, 4> kMagic = {'P', 'L', 'S', 'V'};
constexpr std::uint16_t kVersion = 1;

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// The label keeps these proofs apart from others that are made with the same secret.
net::Mac proof_of(const ValueSigner& signer, std::string_view key, std::uint64_t number, std::string_view text) {
  ByteWriter counted;
  counted.put(number);
  auto counter = std::move(counted).take();
  const std::array<std::span<const std::uint8_t>, 5> parts = {bytes_of("pliant stored value"), bytes_of(signer.job),
                                                              bytes_of(key), counter, bytes_of(text)};
  return signer.secret.sign(parts);
}

}  // namespace

std::string sign_value(const ValueSigner& signer, const std::string& key, std::uint64_t number, std::string_view text) {
  ByteWriter head;
  head.put(kMagic);
  head.put(kVersion);
  head.put(std::uint16_t{0});
  head.put(number);
  head.put(proof_of(signer, key, number, text));
  auto bytes = text_of(std::move(head));
  PLIANT_ASSERT(bytes.size() == kSignatureSize);
  return bytes.append(text);
}

Result<SignedValue> open_value(const ValueSigner& signer, const std::string& key, std::string_view bytes) {
  auto head = reader_of(bytes.substr(0, kSignatureSize));
  auto magic = head.get<std::array<char, 4>>();
  auto version = head.get<std::uint16_t>();
  auto unused = head.get<std::uint16_t>();
  SignedValue value{head.get<std::uint64_t>(), {}};
  auto proof = head.get<net::Mac>();
  if (!head.finished() || magic != kMagic || version != kVersion || unused != 0 || value.number == 0)
    return malformed("it is not signed by this job");
  auto text = bytes.substr(kSignatureSize);
  if (!net::equal(proof, proof_of(signer, key, value.number, text)))
    return Error{Code::refused, "its signature is wrong"};
  value.text = text;
  return value;
}

}  // namespace pliant::membership
