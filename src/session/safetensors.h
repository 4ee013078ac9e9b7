// The safetensors format: an 8-byte length, a JSON header of that length that names every tensor's type, shape and
// place, then the tensors' bytes without holes. Many programs read it. Pure functions; nothing here touches a file.
#pragma once

#include <pliant/pliant.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pliant::session {

/// Where a tensor is, in bytes from the beginning of the data (which follows the header).
struct TensorPlace {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
  bool operator==(const TensorPlace&) const = default;
};

inline constexpr std::size_t kLengthBytes = 8;
inline constexpr std::uint64_t kLongestHeader = 100'000'000;  ///< what other readers accept, too

/// The items in the order of their data: wide types first, so that each tensor is aligned to its type.
std::vector<const StateItem*> in_file_order(const std::vector<StateItem>& items);
/// Their places, in the order given. Code::invalid for names that the format cannot hold: taken twice, not UTF-8.
Result<std::vector<TensorPlace>> place_tensors(const std::vector<const StateItem*>& items);

/// Length and header, padded so that the data behind it is aligned to 8 bytes. REQUIRES names in UTF-8.
std::string encode_header(const std::vector<TensorPlace>& places, const std::map<std::string, std::string>& metadata);

/// The header's length, from a file's first bytes. Checked against the size of the file and against kLongestHeader.
Result<std::uint64_t> decode_length(std::string_view first_bytes, std::uint64_t file_size);
/// The places that a header (without its length) gives, in the order of their data. They cover `data_size` bytes
/// exactly, without overlap, and agree with types and shapes. Takes memory in proportion to the header's real size.
/// BOOL comes back as u8; types that Pliant has no name for are refused.
Result<std::vector<TensorPlace>> decode_header(std::string_view header, std::uint64_t data_size);

/// The number of elements; nothing if it does not fit 64 bits.
std::optional<std::uint64_t> elements_of(const std::vector<std::uint64_t>& shape);
/// A stranger's name in quotes, fit for one line: cut if it is long, without control characters.
std::string in_quotes(std::string_view name);

}  // namespace pliant::session
