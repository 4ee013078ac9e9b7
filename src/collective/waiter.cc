#include "collective/waiter.h"

#include <immintrin.h>
#include <sched.h>

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kFreeTurns = 64;  // spins before the clock is even looked at
constexpr std::uint32_t kYieldEvery = 32;
// With a core for everybody, spinning; but with a yield now and then, in case the one waited for shares this core.
constexpr Nanos kSpin = 300us;
constexpr Nanos kYield = 100us;      // with more ranks than cores: giving the core to whoever is runnable
constexpr Nanos kPreempted = 500us;  // a pause this long means that somebody else had the core

}  // namespace

void Waiter::progressed() {
  began_ = Nanos(0);
  turns_ = 0;
  exhausted_ = false;
}

bool Waiter::pause() {
  if (exhausted_ || crowding_.strangers()) return false;
  if (!crowding_.crowded() && turns_ < kFreeTurns) {
    ++turns_;
    _mm_pause();
    return true;
  }
  auto now = clock_.now();
  if (began_ == Nanos(0)) {
    began_ = last_ = now;
  } else if (now - last_ > kPreempted) {
    crowding_.saw_strangers();
    return false;
  }
  last_ = now;
  auto waited = now - began_;
  exhausted_ = waited >= (crowding_.crowded() ? kYield : kSpin);
  if (exhausted_) return false;
  if (crowding_.crowded() || ++turns_ % kYieldEvery == 0) {
    sched_yield();
    return true;
  }
  for (int i = 0; i < 8; ++i) _mm_pause();
  return true;
}

}  // namespace pliant::collective
