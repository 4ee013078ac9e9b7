// What each fuzzer defines; driver.cc does the rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pliant::fuzz {

using Bytes = std::vector<std::uint8_t>;

/// Valid inputs to begin from, small ones first.
std::vector<Bytes> seeds();
/// Takes any input. A bug is a crash: a sanitizer's finding or a failed PLIANT_ASSERT.
void run(std::span<const std::uint8_t> input);

}  // namespace pliant::fuzz
