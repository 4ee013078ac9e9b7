// What the program can do. Each prints one line of JSON at its end, and returns the exit status.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pliant::stranger {

struct AttackOptions {
  std::vector<std::string> targets;  ///< address:port
  std::string job;
  std::string overheard;  ///< file of `capture`; empty: nothing was overheard
  std::uint64_t connections = 0;
  double rate = 0;         ///< connections per second
  std::uint64_t wave = 0;  ///< so many silent ones first, as fast as they can be made
  std::uint64_t seed = 1;
};
/// Makes connections, lies, and counts what became of them.
int attack(const AttackOptions& options);

/// A plain listener, for comparison: takes connections, answers a hello with noise, closes. Prints its port first; ends
/// with SIGTERM.
int listen(const std::string& address);

/// Writes down handshakes that pass by on the interfaces of this namespace, until SIGTERM.
int capture(const std::string& file);

}  // namespace pliant::stranger
