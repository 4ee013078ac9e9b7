// The reduction kernels: one pass over the contributors' memory, in rank order, so that every bit is repeatable.
#pragma once

#include <pliant/types.h>

#include <cstddef>
#include <span>

#include "base/system.h"

namespace pliant::collective {

/// One contributor's memory and the share its values get.
struct Contribution {
  const void* data;
  double share;
  double spread_share = 0;  ///< what its sum of squares counts in Measured::spread
};

/// What a reduction sees of the numbers that pass through it.
struct Measured {
  double squares = 0;  ///< the sum of the squares of the result
  double spread = 0;   ///< sums of the squares of the contributions, each times its spread_share
  Measured& operator+=(const Measured& other) {
    squares += other.squares;
    spread += other.spread;
    return *this;
  }
};

/// How the contributions become the result:
///   equal shares:    (x0 op x1 op …) · factor
///   unequal shares:  share0·x0 + share1·x1 + …   (weighted mean of floats)
struct Recipe {
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  double factor = 1;
  bool equal_shares = true;
  bool streaming = false;  ///< write past the caches: for results larger than they are
  bool squares = false;    ///< also measure the result (floats only)
  bool spread = false;     ///< also measure the contributions (floats only)
};

/// The recipe of an operation over `weights` of the contributors (all > 0), and each one's share.
Recipe recipe_for(Dtype dtype, Op op, std::span<const double> weights, std::span<double> shares);

/// Reduces `count` elements into `out`; returns what it was asked to measure. An empty list of contributions gives
/// zeros. Same inputs, same level: same bits. `out` must not overlap an input unless it is the same address.
Measured reduce(const Recipe& recipe, void* out, std::span<const Contribution> in, std::size_t count,
                CpuLevel level = cpu_level());

/// The inner product of `now` and `kept`, which becomes a copy of `now`. Floats only.
double product_and_keep(Dtype dtype, void* kept, const void* now, std::size_t count, CpuLevel level = cpu_level());

/// Copies past the caches if `streaming`, else as memcpy.
void copy(void* to, const void* from, std::size_t bytes, bool streaming, CpuLevel level = cpu_level());

}  // namespace pliant::collective
