// Base64 with the alphabet of RFC 4648, section 4: bytes as text that any protocol carries.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace pliant {

/// Padded with '='.
std::string to_base64(std::string_view bytes);
/// Code::protocol for anything that to_base64() does not write: no white space, no missing '=', no stray bits. So equal
/// bytes have equal text.
Result<std::string> from_base64(std::string_view text);

}  // namespace pliant
