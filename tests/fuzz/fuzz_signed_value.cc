// What lies in a store that anybody can write to: bytes are this job's, or they are refused.
#include <string>

#include "fuzz/fuzz.h"
#include "membership/signed_value.h"

namespace pliant::fuzz {
namespace {

const membership::ValueSigner& signer() {
  static const membership::ValueSigner kSigner{net::Secret::from_text(std::string(64, '7')).or_throw(), "job"};
  return kSigner;
}

Bytes signed_value(std::uint64_t number, const std::string& text) {
  auto bytes = membership::sign_value(signer(), "key", number, text);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::vector<Bytes> seeds() {
  return {signed_value(1, ""), signed_value(2, "text"), signed_value(UINT64_MAX, std::string(300, 'x'))};
}

/// What is taken for the job's is exactly what the job would write.
void run(std::span<const std::uint8_t> input) {
  std::string bytes(reinterpret_cast<const char*>(input.data()), input.size());
  auto opened = membership::open_value(signer(), "key", bytes);
  if (opened.ok()) {
    PLIANT_ASSERT(membership::sign_value(signer(), "key", opened.value().number, opened.value().text) == bytes);
    PLIANT_ASSERT(!membership::open_value(signer(), "another", bytes).ok());
    return;
  }
  PLIANT_ASSERT(opened.error().code == Code::protocol || opened.error().code == Code::refused);
}

}  // namespace pliant::fuzz
