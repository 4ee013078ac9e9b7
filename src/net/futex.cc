#include "net/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <ctime>

namespace pliant::net {
namespace {

constexpr long kFutexWaitv = 449;         // SYS_futex_waitv, unknown to older headers
constexpr std::uint32_t kFutex32 = 0x02;  // a 32-bit word, shared between processes
constexpr std::size_t kMostWords = 128;

struct WaitEntry {  // struct futex_waitv
  std::uint64_t value;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};

timespec to_timespec(std::chrono::nanoseconds span) {
  auto whole = std::chrono::duration_cast<std::chrono::seconds>(span);
  return {whole.count(), (span - whole).count()};
}

void wait_one(FutexWord first, std::chrono::nanoseconds limit) {
  auto timeout = to_timespec(limit);
  syscall(SYS_futex, first.word, FUTEX_WAIT, first.seen, &timeout, nullptr, 0);
}

}  // namespace

void futex_wait_any(std::span<const FutexWord> words, std::chrono::nanoseconds limit) {
  if (words.size() == 1) return wait_one(words[0], limit);
  static std::atomic<bool> have_waitv{true};
  if (words.size() > kMostWords || !have_waitv.load(std::memory_order_relaxed))
    return wait_one(words[0], std::min<std::chrono::nanoseconds>(limit, std::chrono::milliseconds(1)));

  std::array<WaitEntry, kMostWords> entries;
  for (std::size_t i = 0; i < words.size(); ++i)
    entries[i] = {words[i].seen, reinterpret_cast<std::uint64_t>(words[i].word), kFutex32, 0};
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  auto end = to_timespec(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec) + limit);
  if (syscall(kFutexWaitv, entries.data(), words.size(), 0, &end, CLOCK_MONOTONIC) < 0 && errno == ENOSYS) {
    have_waitv.store(false, std::memory_order_relaxed);
  }
}

void futex_wake(const std::atomic<std::uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace pliant::net
