// Sleeping on words in shared memory. Works on read-only mappings: the waiter needs only to read.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

namespace pliant::net {

struct FutexWord {
  const std::atomic<std::uint32_t>* word;
  std::uint32_t seen;
};

/// Sleeps until one of the words was woken, one no longer holds what was seen, or `limit` has passed.
/// Spurious returns are allowed. Without futex_waitv (Linux before 5.16, or more than 128 words) it sleeps on the
/// first word for at most a millisecond.
void futex_wait_any(std::span<const FutexWord> words, std::chrono::nanoseconds limit);
/// Wakes everybody who sleeps on the word, in any process.
void futex_wake(const std::atomic<std::uint32_t>* word);

}  // namespace pliant::net
