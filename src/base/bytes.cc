#include "base/bytes.h"

#include <fmt/format.h>

#include <charconv>

namespace pliant {

Result<std::uint64_t> parse_bytes(std::string_view text) {
  const Error bad{Code::invalid,
                  fmt::format("'{}' is not a size: expected a number with an optional Ki, Mi or Gi", text)};
  std::uint64_t number = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end == text.data()) return bad;
  std::string_view unit(end, text.data() + text.size() - end);
  if (unit.ends_with("B")) unit.remove_suffix(1);
  int shift = 0;
  if (unit == "Ki" || unit == "K")
    shift = 10;
  else if (unit == "Mi" || unit == "M")
    shift = 20;
  else if (unit == "Gi" || unit == "G")
    shift = 30;
  else if (!unit.empty())
    return bad;
  if (number > (UINT64_MAX >> shift)) return bad;
  return number << shift;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  bool whole = value == static_cast<double>(static_cast<std::uint64_t>(value));
  return fmt::format("{:.{}f} {}", value, whole ? 0 : 1, kUnits[unit]);
}

}  // namespace pliant
