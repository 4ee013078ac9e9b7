#include "base/log.h"

#include <unistd.h>

#include <mutex>
#include <string>

#include "base/system.h"

namespace pliant::log {
namespace {

Level threshold() {
  static const Level level = [] {
    auto wanted = env("PLIANT_LOG").value_or("info");
    if (wanted == "debug") return Level::debug;
    if (wanted == "warn") return Level::warn;
    if (wanted == "quiet") return Level::error;
    return Level::info;
  }();
  return level;
}

std::mutex prefix_mutex;
std::string& prefix() {  // guarded by prefix_mutex
  static std::string text = "pliant: ";
  return text;
}

thread_local Sink* redirected = nullptr;

}  // namespace

bool enabled(Level level) { return redirected ? redirected->enabled(level) : level >= threshold(); }

void redirect(Sink* sink) { redirected = sink; }

void set_prefix(std::string_view name) {
  std::lock_guard lock(prefix_mutex);
  prefix() = name.empty() ? "pliant: " : fmt::format("pliant[{}]: ", name);
}

void write(Level level, std::string_view text) {
  if (redirected) return redirected->write(level, text);
  std::string line;
  {
    std::lock_guard lock(prefix_mutex);
    line = prefix();
  }
  if (level == Level::warn) line += "warning: ";
  if (level == Level::error) line += "error: ";
  line.append(text).push_back('\n');
  // One write per line, so that lines of several processes on one terminal do not mix.
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace pliant::log
