#include "collective/spare_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/system.h"
#include "net/shared_memory.h"

namespace pliant::collective {
namespace {

constexpr std::size_t kAtOnce = 32 << 20;

}  // namespace

SpareMemory::Piece SpareMemory::take(std::size_t bytes) {
  Piece taken;
  std::lock_guard lock(mutex_);
  ++turns_;
  std::swap(taken, piece_);
  if (taken.bytes < bytes) return {};
  return taken;
}

void SpareMemory::make(const std::string& name, std::size_t bytes, const std::stop_token& stop) {
  std::lock_guard once(making_);
  Fd memory;
  std::uint64_t turn = 0;
  if (!begin(name, bytes, memory, turn) || fill(memory, bytes, turn, stop)) return;
  std::lock_guard lock(mutex_);
  if (turns_ != turn) return;
  piece_ = {};
}

/// The piece without its pages; false: there is one already, or there can be none.
bool SpareMemory::begin(const std::string& name, std::size_t bytes, Fd& memory, std::uint64_t& turn) {
  {
    std::lock_guard lock(mutex_);
    if (piece_.bytes >= bytes) return false;
    piece_ = {};  // before the other: there is never more than one
  }
  if (bytes > available_memory() / 2) return false;
  auto made = net::create_memory(name, bytes, net::Backing::sparse);
  if (!made.ok()) return false;
  memory = std::move(made).value();
  Fd second(fcntl(memory.get(), F_DUPFD_CLOEXEC, 0));
  if (!second) return false;
  std::lock_guard lock(mutex_);
  piece_ = {std::move(second), bytes, 0};
  turn = ++turns_;
  return true;
}

/// False: it did not come to its end, and what there is of it is worth nothing unless it was taken.
bool SpareMemory::fill(const Fd& memory, std::size_t bytes, std::uint64_t turn, const std::stop_token& stop) {
  for (std::size_t at = 0; at < bytes; at += kAtOnce) {
    if (stop.stop_requested()) return false;
    auto part = std::min(kAtOnce, bytes - at);
    if (auto filled = net::fill_memory(memory, at, part, net::Backing::cleared); !filled.ok()) {
      log::debug("no spare memory: {}", filled.error().message);
      return false;
    }
    std::lock_guard lock(mutex_);
    if (turns_ != turn) return true;
    piece_.filled = at + part;
  }
  return true;
}

}  // namespace pliant::collective
