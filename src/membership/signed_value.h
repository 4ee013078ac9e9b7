// A value as it lies in a store that others can write to: the text, with a number and a proof that somebody who knows
// the job's secret wrote it under this key (docs/bytes.md). Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/trust.h"

namespace pliant::membership {

/// Who signs, and what for: a value of another job or another key is not taken for this one's.
struct ValueSigner {
  net::Secret secret;
  std::string job;
};

struct SignedValue {
  std::uint64_t number = 0;  ///< grows with every replacement of the key's value; from 1
  std::string text;
};

/// So many bytes are added to a text.
constexpr std::size_t kSignatureSize = 48;

std::string sign_value(const ValueSigner& signer, const std::string& key, std::uint64_t number, std::string_view text);
/// Code::protocol if these bytes are no signed value at all, Code::refused if the proof does not fit to the key, the
/// number and the text.
Result<SignedValue> open_value(const ValueSigner& signer, const std::string& key, std::string_view bytes);

}  // namespace pliant::membership
