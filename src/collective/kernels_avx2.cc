// Kernels for CPUs with AVX2 and FMA.
#include <immintrin.h>

#include <span>
#include <vector>

#include "collective/kernels.h"
#include "collective/kernels_levels.h"

namespace pliant::collective::avx2 {

struct Vec {
  static constexpr std::size_t kLanes = 8;
  __m256 v;
  static Vec load(const float* at) { return {_mm256_loadu_ps(at)}; }
  static Vec all(float x) { return {_mm256_set1_ps(x)}; }
  void store(float* at) const { _mm256_storeu_ps(at, v); }
  void stream(float* at) const { _mm256_stream_ps(at, v); }
  /// Streaming stores are weakly ordered: make them visible before anything is published.
  static void drain() { _mm_sfence(); }
  double total() const {
    float lanes[kLanes];
    _mm256_storeu_ps(lanes, v);
    double sum = 0;
    for (float lane : lanes) sum += lane;
    return sum;
  }
  friend Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
};

}  // namespace pliant::collective::avx2

#define PLIANT_LEVEL avx2
#include "collective/kernels_impl.h"
