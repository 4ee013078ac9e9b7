#include "agent/ending.h"

#include <fmt/format.h>

#include <cstring>

namespace pliant::agent {

std::string Ending::words() const {
  if (unknown) return "exit status not known: another agent started it";
  if (signal) return fmt::format("killed by signal {} ({})", signal, strsignal(signal));
  return fmt::format("exit code {}", code);
}

}  // namespace pliant::agent
