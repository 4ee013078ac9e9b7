// What a stranger says to a port of a job whose secret it does not know. docs/bytes.md shows the messages.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <span>
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
  Bytes second;           ///< when an answer has come; empty: none is expected
  bool hangs_up = false;  ///< after the first words
};

/// REQUIRES: one thread.
class Liar {
 public:
  Liar(std::string job, std::vector<Overheard> overheard, std::uint64_t seed);
  Lie tell(Kind kind, const std::string& to);

 private:
  Bytes random_bytes(std::size_t size);
  /// Under a secret that nobody has.
  Bytes hello(std::uint64_t from, std::uint64_t worker, std::uint64_t view, const std::string& job);
  Bytes proof();
  Lie replay(const std::string& to);
  Lie oversized();
  Lie misdirected();
  std::size_t below(std::size_t limit);

  std::string job_;
  std::vector<Overheard> overheard_;
  std::mt19937_64 random_;
};

// Of an answer to a hello: the least that it has, and where its random number is.
inline constexpr std::size_t kAnswerSize = 160, kRandomAt = 11;

/// Where a hello has its introduction; nullptr if there is none.
const std::uint8_t* introduction_in(std::span<const std::uint8_t> hello);

}  // namespace pliant::stranger
