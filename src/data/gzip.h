// Whole files, inflated if they are gzipped.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace pliant::data {

/// A file's bytes; gzip members (told by 1f 8b) are inflated. No file may unpack to more than `most` bytes.
Result<std::vector<std::uint8_t>> read_whole(const std::string& path, std::uint64_t most = std::uint64_t{4} << 30);

/// Inflates one or more gzip members that fill `bytes`. Memory grows with what really comes out, never beyond `most`.
Result<std::vector<std::uint8_t>> gunzip(std::span<const std::uint8_t> bytes, std::uint64_t most);

/// `path`, or `path`.gz if only that is there; Code::not_found if neither is.
Result<std::string> plain_or_gz(const std::string& path);

}  // namespace pliant::data
