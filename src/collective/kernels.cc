#include "collective/kernels.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/result.h"
#include "collective/kernels_levels.h"

namespace pliant::collective {

Recipe recipe_for(Dtype dtype, Op op, std::span<const double> weights, std::span<double> shares) {
  PLIANT_ASSERT(shares.size() == weights.size());
  Recipe recipe;
  recipe.dtype = dtype;
  recipe.op = op;
  std::fill(shares.begin(), shares.end(), 1.0);
  if (weights.empty() || (op != Op::mean && op != Op::weighted_mean)) return recipe;
  recipe.factor = 1.0 / static_cast<double>(weights.size());
  if (op == Op::mean) return recipe;
  // Equal weights are a plain mean: one multiplication per element, and the same bits as Op::mean.
  recipe.equal_shares = std::all_of(weights.begin(), weights.end(), [&](double w) { return w == weights[0]; });
  if (recipe.equal_shares) return recipe;
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t k = 0; k < weights.size(); ++k) shares[k] = weights[k] / total;
  return recipe;
}

Measured reduce(const Recipe& recipe, void* out, std::span<const Contribution> in, std::size_t count, CpuLevel level) {
  if (in.empty()) {
    std::memset(out, 0, count * size_of(recipe.dtype));
    return {};
  }
  switch (level) {
    case CpuLevel::avx512:
      return avx512::reduce_level(recipe, out, in, count);
    case CpuLevel::avx2:
      return avx2::reduce_level(recipe, out, in, count);
    case CpuLevel::baseline:
      break;
  }
  return baseline::reduce_level(recipe, out, in, count);
}

double product_and_keep(Dtype dtype, void* kept, const void* now, std::size_t count, CpuLevel level) {
  switch (level) {
    case CpuLevel::avx512:
      return avx512::product_level(dtype, kept, now, count);
    case CpuLevel::avx2:
      return avx2::product_level(dtype, kept, now, count);
    case CpuLevel::baseline:
      break;
  }
  return baseline::product_level(dtype, kept, now, count);
}

void copy(void* to, const void* from, std::size_t bytes, bool streaming, CpuLevel level) {
  if (!streaming || bytes < 4096) {
    std::memcpy(to, from, bytes);
    return;
  }
  switch (level) {
    case CpuLevel::avx512:
      return avx512::copy_level(to, from, bytes);
    case CpuLevel::avx2:
      return avx2::copy_level(to, from, bytes);
    case CpuLevel::baseline:
      return baseline::copy_level(to, from, bytes);
  }
}

}  // namespace pliant::collective
