// The bytes of a record: one line of JSON (docs/bytes.md). Lines that are read may be anybody's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "record/record.h"

namespace pliant::record {

/// Longer lines are refused unread. The widest view (512 members) needs some 50 KiB.
inline constexpr std::size_t kLongestLine = 1 << 20;
/// Larger numbers are refused, except as a worker's id: nothing is counted so high, and sums stay far from overflow.
inline constexpr std::uint64_t kLargestNumber = std::uint64_t{1} << 53;

/// Appends the line and its newline. What is not a number becomes null. A step is written as of its own version.
void append_line(const Line& line, std::string& out);

/// Reads one line, without its newline. Code::protocol with a few words on what is wrong with it. Fields that it does
/// not know are passed over; memory is taken only for what a record holds. Versions above kVersion are refused by name.
Result<Line> decode_line(std::string_view text);

}  // namespace pliant::record
