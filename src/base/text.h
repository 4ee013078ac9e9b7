// Small texts for people.
#pragma once

#include <string>
#include <string_view>

namespace pliant {

/// "0:42", "12:05" or "1:02:03".
std::string format_span(double seconds);
/// The text with control characters replaced, safe on a terminal and in one line.
std::string printable(std::string_view text);

}  // namespace pliant
