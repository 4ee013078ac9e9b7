#include "base/planted.h"

#include <cstring>

namespace pliant {

namespace internal {

std::atomic<const char*> planted_mistake{nullptr};

bool is_planted(const char* name) {
  const char* chosen = planted_mistake.load(std::memory_order_relaxed);
  return chosen && std::strcmp(chosen, name) == 0;
}

}  // namespace internal

void plant(const char* name) { internal::planted_mistake = name; }

}  // namespace pliant
