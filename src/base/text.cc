#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>

namespace pliant {

std::string format_span(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) seconds = 0;
  auto whole = static_cast<std::uint64_t>(std::min(seconds, 1e12));
  auto hours = whole / 3600;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string printable(std::string_view text) {
  std::string clean(text);
  std::ranges::replace_if(
      clean, [](unsigned char c) { return std::iscntrl(c); }, ' ');
  return clean;
}

}  // namespace pliant
