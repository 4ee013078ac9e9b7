// The entry points of each level's kernels; kernels.cc chooses.
#pragma once

#include <cstddef>
#include <span>

#include "collective/kernels.h"

namespace pliant::collective {
#define PLIANT_DECLARE_LEVEL(level)                                                                            \
  namespace level {                                                                                            \
  Measured reduce_level(const Recipe& recipe, void* out, std::span<const Contribution> in, std::size_t count); \
  double product_level(Dtype dtype, void* kept, const void* now, std::size_t count);                           \
  void copy_level(void* to, const void* from, std::size_t bytes);                                              \
  }
PLIANT_DECLARE_LEVEL(baseline)
PLIANT_DECLARE_LEVEL(avx2)
PLIANT_DECLARE_LEVEL(avx512)
#undef PLIANT_DECLARE_LEVEL
}  // namespace pliant::collective
