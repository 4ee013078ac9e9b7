#include "collective/waiter.h"

#include <immintrin.h>
#include <sched.h>

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kFreeTurns = 64;   // spins before the clock is even looked at
constexpr Nanos kSpin = 20us;              // on a core of one's own
constexpr Nanos kYield = 100us;            // giving the core to whoever is runnable
constexpr Nanos kPreempted = 300us;        // a pause this long means that somebody else had the core

}  // namespace

void Waiter::progressed() {
  began_ = Nanos(0);
  turns_ = 0;
}

bool Waiter::pause() {
  if (crowding_.strangers()) return false;
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
  if (!crowding_.crowded() && waited < kSpin) {
    for (int i = 0; i < 8; ++i) _mm_pause();
    return true;
  }
  if (waited >= kSpin + kYield) return false;
  sched_yield();
  return true;
}

}  // namespace pliant::collective
