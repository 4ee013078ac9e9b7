// Whole files, inflated if they are gzipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace pliant::data {

/// A file's bytes; gzip members (told by 1f 8b) are inflated. No file may unpack to more than `most` bytes.
Result<std::vector<std::uint8_t>> read_whole(const std::string& path, std::uint64_t most = std::uint64_t{4} << 30);

}  // namespace pliant::data
