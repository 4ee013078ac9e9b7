// What a stranger says to a port of a job whose secret it does not know. docs/bytes.md shows the messages.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace pliant::stranger {

using Bytes = std::vector<std::uint8_t>;

enum class Kind : std::uint8_t { noise, wrong_secret, replay, truncated, silent, oversized, unknown, misdirected };
inline constexpr std::array<const char*, 8> kNames = {"noise",  "wrong_secret", "replay",  "truncated",
                                                      "silent", "oversized",    "unknown", "misdirected"};

/// A handshake that somebody overheard: what the caller said to `port` at `address`.
struct Overheard {
  std::string to;
  Bytes hello, proof;
};

struct Lie {
  Kind kind = Kind::silent;
  Bytes first;            ///< at once
  Bytes second;           ///< when a challenge has come; empty: none is expected
  bool hangs_up = false;  ///< after the first words
};

/// REQUIRES: one thread.
class Liar {
 public:
  Liar(std::string job, std::vector<Overheard> overheard, std::uint64_t seed);
  Lie tell(Kind kind, const std::string& to);

 private:
  Bytes random_bytes(std::size_t size);
  Bytes opening(std::uint8_t kind, std::uint8_t purpose, std::uint16_t version) const;
  Bytes hello(std::uint64_t from, std::uint64_t worker, std::uint64_t view, const std::string& job,
              std::uint16_t version);
  Bytes proof();
  Lie replay(const std::string& to);
  Lie oversized();
  Lie misdirected();
  std::size_t below(std::size_t limit);

  std::string job_;
  std::vector<Overheard> overheard_;
  std::mt19937_64 random_;
};

inline constexpr std::size_t kChallengeSize = 72;

}  // namespace pliant::stranger
