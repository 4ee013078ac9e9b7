// The bytes of a record: one line of JSON (record.h says what is in it). Lines that are read may be anybody's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "session/record.h"

namespace pliant::session {

/// Longer lines are refused unread. The widest view (512 members) needs some 40 KiB.
inline constexpr std::size_t kLongestLine = 1 << 20;
/// Larger numbers are refused, except as a worker's id: nothing is counted so high, and sums stay far from overflow.
inline constexpr std::uint64_t kLargestNumber = std::uint64_t{1} << 53;

struct Line {
  enum class Kind { step, event };
  Kind kind = Kind::step;
  StepRecord record;                         ///< of a step
  std::optional<std::uint64_t> other_epoch;  ///< of a contribution whose epoch is not the step's
};

/// Appends the step's line and its newline. What is not a number becomes null.
void append_line(const StepRecord& record, std::string& out);
std::string event_line(double t, const std::string& what, std::int64_t worker, const std::string& text);

/// Reads one line, without its newline. Code::protocol with a few words on what is wrong with it. Fields that it does
/// not know are passed over; memory is taken only for what a record holds.
Result<Line> decode_line(std::string_view text);

}  // namespace pliant::session
