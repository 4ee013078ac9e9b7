// Kernels for any x86-64: SSE2.
#include <immintrin.h>

#include <span>
#include <vector>

#include "collective/kernels.h"
#include "collective/kernels_levels.h"

namespace pliant::collective::baseline {

struct Vec {
  static constexpr std::size_t kLanes = 4;
  __m128 v;
  static Vec load(const float* at) { return {_mm_loadu_ps(at)}; }
  static Vec all(float x) { return {_mm_set1_ps(x)}; }
  void store(float* at) const { _mm_storeu_ps(at, v); }
  void stream(float* at) const { _mm_stream_ps(at, v); }
  /// Streaming stores are weakly ordered: make them visible before anything is published.
  static void drain() { _mm_sfence(); }
  double total() const {
    float lanes[kLanes];
    _mm_storeu_ps(lanes, v);
    double sum = 0;
    for (float lane : lanes) sum += lane;
    return sum;
  }
  friend Vec operator+(Vec a, Vec b) { return {_mm_add_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm_mul_ps(a.v, b.v)}; }
};

}  // namespace pliant::collective::baseline

#define PLIANT_LEVEL baseline
#include "collective/kernels_impl.h"
