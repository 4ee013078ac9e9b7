// Kernels for CPUs with AVX-512.
#include <immintrin.h>

#include <span>
#include <vector>

#include "collective/kernels.h"
#include "collective/kernels_levels.h"

namespace pliant::collective::avx512 {

struct Vec {
  static constexpr std::size_t kLanes = 16;
  __m512 v;
  static Vec load(const float* at) { return {_mm512_loadu_ps(at)}; }
  static Vec all(float x) { return {_mm512_set1_ps(x)}; }
  void store(float* at) const { _mm512_storeu_ps(at, v); }
  void stream(float* at) const { _mm512_stream_ps(at, v); }
  /// Streaming stores are weakly ordered: make them visible before anything is published.
  static void drain() { _mm_sfence(); }
  double total() const {
    float lanes[kLanes];
    _mm512_storeu_ps(lanes, v);
    double sum = 0;
    for (float lane : lanes) sum += lane;
    return sum;
  }
  friend Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
};

}  // namespace pliant::collective::avx512

#define PLIANT_LEVEL avx512
#include "collective/kernels_impl.h"
