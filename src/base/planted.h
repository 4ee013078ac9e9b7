// Mistakes on order: the simulation of whole jobs puts in one that is known, and must find it
// (tests/simulation/plants.h). Nothing else does. Where none is put in, to ask costs one load; nothing asks on the path
// of a step's data.
//
//   if (planted("fence-late")) return;    // what the mistake is
#pragma once

#include <atomic>

namespace pliant {

namespace internal {
extern std::atomic<const char*> planted_mistake;
bool is_planted(const char* name);
}  // namespace internal

/// This mistake is to be made.
inline bool planted(const char* name) {
  return internal::planted_mistake.load(std::memory_order_relaxed) && internal::is_planted(name);
}

/// For simulations: `name`, which must stay, is put in from now on; nullptr: none.
void plant(const char* name);

}  // namespace pliant
