// One line per event on stderr: "pliant: <text>" or, inside a worker, "pliant[rank]: <text>".
// PLIANT_LOG=quiet|warn|info|debug chooses how much (info).
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace pliant::log {

enum class Level { debug, info, warn, error };

bool enabled(Level level);
void write(Level level, std::string_view text);
/// Where the calling thread's lines go instead of stderr; nullptr: to stderr. For simulations.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual bool enabled(Level level) = 0;
  virtual void write(Level level, std::string_view text) = 0;
};
void redirect(Sink* sink);
/// The name shown before each line of this process: "" or a rank.
void set_prefix(std::string_view prefix);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::debug)) write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::info)) write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::warn)) write(Level::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::error)) write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace pliant::log
