// Memory that is made before it is needed, so that nobody waits for its pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <string>

#include "base/fd.h"

namespace pliant::collective {

/// Memory for the slices of a later region: at most one piece, which nobody else has seen and which serves once.
/// Threads: any.
class SpareMemory {
 public:
  struct Piece {
    Fd memory;
    std::size_t bytes = 0;
    std::size_t filled = 0;  ///< bytes from its beginning whose pages are there
    /// Nobody works on it any more.
    bool whole() const { return filled == bytes; }
  };
  /// What was made, or is being made, if it has `bytes`; otherwise nothing, and what there was is gone.
  Piece take(std::size_t bytes);
  /// Sees to it that there are `bytes`, unless that is more than half of the memory that is left. Ends early if that is
  /// asked for, or if somebody takes what there is so far.
  void make(const std::string& name, std::size_t bytes, const std::stop_token& stop);

 private:
  bool begin(const std::string& name, std::size_t bytes, Fd& memory, std::uint64_t& turn);
  bool fill(const Fd& memory, std::size_t bytes, std::uint64_t turn, const std::stop_token& stop);

  std::mutex making_;        // one at a time
  std::mutex mutex_;         // never held for long
  Piece piece_;              // guarded by mutex_; not sealed
  std::uint64_t turns_ = 0;  // guarded by mutex_; grows when the piece comes or goes
};

}  // namespace pliant::collective
