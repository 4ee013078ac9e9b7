// The kernels' bodies. Each kernels_<level>.cc includes this file in a namespace of its own and is compiled with that
// level's instructions; the vector type `Vec` (floats) and PLIANT_LEVEL come from there.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace pliant::collective::PLIANT_LEVEL {

// ---- every type and operation, one element at a time; the compiler vectorises the inner loops ----

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline std::int64_t widen(std::int8_t x) { return x; }
inline std::int64_t widen(std::uint8_t x) { return x; }
inline std::int64_t widen(std::int32_t x) { return x; }
inline std::int64_t widen(std::int64_t x) { return x; }
inline float widen(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
inline float widen(Half x) {
  std::uint32_t sign = (x.bits & 0x8000U) << 16;
  std::uint32_t magnitude = x.bits & 0x7fffU;
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  // Scaling by 2^112 moves the exponent's bias and makes subnormals come out right.
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112F));
}

template <class T, class Wide>
inline T narrow(Wide x) {
  return static_cast<T>(x);
}
template <>
inline BFloat16 narrow<BFloat16, float>(float x) {
  auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};  // to nearest, ties to even
}
template <>
inline Half narrow<Half, float>(float x) {
  auto bits = std::bit_cast<std::uint32_t>(x);
  auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  auto magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return {static_cast<std::uint16_t>(sign | 0x7e00U)};
  if (magnitude >= 0x477ff000U) return {static_cast<std::uint16_t>(sign | 0x7c00U)};  // rounds to infinity
  if (magnitude < 0x38800000U) {  // subnormal: let a float addition do the rounding
    auto rounded = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F);
    return {static_cast<std::uint16_t>(sign | (rounded - 0x3f000000U))};
  }
  auto rounded = magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U);
  return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

template <Op kOp, class Wide>
inline Wide join(Wide a, Wide b) {
  if constexpr (kOp == Op::min) return b < a || b != b ? b : a;
  if constexpr (kOp == Op::max) return b > a || b != b ? b : a;
  if constexpr (std::is_integral_v<Wide>) {  // wraps around, as integers of that size do
    auto x = static_cast<std::uint64_t>(a);
    auto y = static_cast<std::uint64_t>(b);
    return static_cast<Wide>(kOp == Op::product ? x * y : x + y);
  } else {
    if constexpr (kOp == Op::product) return a * b;
    return a + b;
  }
}

constexpr std::size_t kBlock = 1024;  // elements that stay in the first-level cache between contributors

template <class T>
double squares_of(const T* values, std::size_t count) {
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto value = static_cast<double>(widen(values[i]));
    squares += value * value;
  }
  return squares;
}

template <class T>
double finish(const Recipe& recipe, T* out, const decltype(widen(T{}))* sums, std::size_t count) {
  bool scaled = recipe.factor != 1 && (recipe.op == Op::mean || recipe.op == Op::weighted_mean);
  for (std::size_t i = 0; i < count; ++i) {
    auto value = sums[i];
    if (scaled) {
      if constexpr (std::is_integral_v<decltype(value)>)
        value = static_cast<std::int64_t>(static_cast<double>(value) * recipe.factor);
      else
        value *= static_cast<decltype(value)>(recipe.factor);
    }
    out[i] = narrow<T>(value);
  }
  return recipe.squares ? squares_of(out, count) : 0;
}

/// Of elements [at, at + size) of the contributions. Before the result is written: it may be in place.
template <class T>
double spread_of(std::span<const Contribution> in, std::size_t at, std::size_t size) {
  double spread = 0;
  for (const auto& one : in) spread += one.spread_share * squares_of(static_cast<const T*>(one.data) + at, size);
  return spread;
}

template <class T, Op kOp>
Measured reduce_equal(const Recipe& recipe, T* out, std::span<const Contribution> in, std::size_t count) {
  using Wide = decltype(widen(T{}));
  Wide sums[kBlock];
  Measured measured;
  for (std::size_t at = 0; at < count; at += kBlock) {
    auto size = std::min(kBlock, count - at);
    const T* first = static_cast<const T*>(in[0].data) + at;
    for (std::size_t i = 0; i < size; ++i) sums[i] = widen(first[i]);
    for (std::size_t k = 1; k < in.size(); ++k) {
      const T* next = static_cast<const T*>(in[k].data) + at;
      for (std::size_t i = 0; i < size; ++i) sums[i] = join<kOp>(sums[i], static_cast<Wide>(widen(next[i])));
    }
    if (recipe.spread) measured.spread += spread_of<T>(in, at, size);
    measured.squares += finish(recipe, out + at, sums, size);
  }
  return measured;
}

template <class T>
Measured reduce_shares(const Recipe& recipe, T* out, std::span<const Contribution> in, std::size_t count) {
  using Wide = decltype(widen(T{}));
  using Sum = std::conditional_t<std::is_same_v<Wide, float>, float, double>;
  Sum sums[kBlock];
  Measured measured;
  for (std::size_t at = 0; at < count; at += kBlock) {
    auto size = std::min(kBlock, count - at);
    std::fill_n(sums, size, Sum{});
    for (const auto& one : in) {
      const T* next = static_cast<const T*>(one.data) + at;
      auto share = static_cast<Sum>(one.share);
      for (std::size_t i = 0; i < size; ++i) sums[i] += share * static_cast<Sum>(widen(next[i]));
    }
    if (recipe.spread) measured.spread += spread_of<T>(in, at, size);
    for (std::size_t i = 0; i < size; ++i) {
      if constexpr (std::is_integral_v<Wide>)
        out[at + i] = static_cast<T>(static_cast<Wide>(sums[i]));
      else
        out[at + i] = narrow<T>(static_cast<Wide>(sums[i]));
    }
    if (recipe.squares) measured.squares += squares_of(out + at, size);
  }
  return measured;
}

template <class T>
Measured reduce_as(const Recipe& recipe, void* out, std::span<const Contribution> in, std::size_t count) {
  auto* to = static_cast<T*>(out);
  if (!recipe.equal_shares) return reduce_shares<T>(recipe, to, in, count);
  switch (recipe.op) {
    case Op::min:
      return reduce_equal<T, Op::min>(recipe, to, in, count);
    case Op::max:
      return reduce_equal<T, Op::max>(recipe, to, in, count);
    case Op::product:
      return reduce_equal<T, Op::product>(recipe, to, in, count);
    default:
      return reduce_equal<T, Op::sum>(recipe, to, in, count);
  }
}

// ---- fp32 sums and means, the hot path: vectors, several contributors per pass, streaming stores ----

constexpr std::size_t kLanes = Vec::kLanes;
constexpr std::size_t kTile = 4096 / sizeof(float);  // one page: a partial sum waits in the first-level cache
constexpr std::size_t kPass = 8;                     // contributors per pass: as many streams as prefetchers follow

enum class Look : std::uint8_t { nowhere, result, everywhere };  // what is measured

constexpr std::size_t kUnroll = 4;

/// Sums of squares of the contributions; several, so that they do not wait for each other.
struct Spread {
  Vec sums[kUnroll];
  Spread() { std::fill_n(sums, kUnroll, Vec::all(0)); }
  double total() const { return ((sums[0] + sums[1]) + (sums[2] + sums[3])).total(); }
};

template <bool kShares, Look kLook>
inline Vec term(const float* at, const Vec& share, const Vec& spread_share, Vec& spread) {
  Vec x = Vec::load(at);
  if constexpr (kLook == Look::everywhere) spread = spread + x * spread_share * x;
  if constexpr (kShares) return x * share;
  return x;
}

/// Adds up what is in `sums`, unless that is nullptr, and the contributors. count is a multiple of kLanes.
template <bool kShares, Look kLook, class Emit>
inline void pass(const float* sums, std::span<const Contribution> in, std::size_t offset, std::size_t count,
                 Spread& spread, Emit&& emit) {
  const float* from[kPass];
  Vec share[kPass], spread_share[kPass];
  for (std::size_t k = 0; k < in.size(); ++k) {
    from[k] = static_cast<const float*>(in[k].data) + offset;
    share[k] = Vec::all(static_cast<float>(in[k].share));
    spread_share[k] = Vec::all(static_cast<float>(in[k].spread_share));
  }
  auto value = [&](std::size_t k, std::size_t at, std::size_t u) {
    return term<kShares, kLook>(from[k] + at, share[k], spread_share[k], spread.sums[u]);
  };
  std::size_t first = sums ? 0 : 1;
  std::size_t i = 0;
  for (; i + kUnroll * kLanes <= count; i += kUnroll * kLanes) {
    Vec x[kUnroll];
    for (std::size_t u = 0; u < kUnroll; ++u)
      x[u] = sums ? Vec::load(sums + i + u * kLanes) : value(0, i + u * kLanes, u);
    for (std::size_t k = first; k < in.size(); ++k)
      for (std::size_t u = 0; u < kUnroll; ++u) x[u] = x[u] + value(k, i + u * kLanes, u);
    for (std::size_t u = 0; u < kUnroll; ++u) emit(i + u * kLanes, x[u]);
  }
  for (; i < count; i += kLanes) {
    Vec x = sums ? Vec::load(sums + i) : value(0, i, 0);
    for (std::size_t k = first; k < in.size(); ++k) x = x + value(k, i, 0);
    emit(i, x);
  }
}

template <bool kShares, bool kStream, Look kLook>
Measured reduce_tile(float factor, float* out, std::span<const Contribution> in, std::size_t offset,
                     std::size_t count) {
  alignas(64) float sums[kTile];
  const float* carried = nullptr;
  Spread spread;
  while (in.size() > kPass) {
    pass<kShares, kLook>(carried, in.first(kPass), offset, count, spread,
                         [&](std::size_t i, Vec x) { x.store(sums + i); });
    carried = sums;
    in = in.subspan(kPass);
  }
  Vec squares = Vec::all(0);
  Vec scale = Vec::all(factor);
  pass<kShares, kLook>(carried, in, offset, count, spread, [&](std::size_t i, Vec x) {
    if constexpr (!kShares) x = x * scale;
    if constexpr (kLook != Look::nowhere) squares = squares + x * x;
    if constexpr (kStream)
      x.stream(out + offset + i);
    else
      x.store(out + offset + i);
  });
  Measured measured;
  if constexpr (kLook != Look::nowhere) measured.squares = squares.total();
  if constexpr (kLook == Look::everywhere) measured.spread = spread.total();
  return measured;
}

template <bool kShares, bool kStream, Look kLook>
Measured reduce_f32(const Recipe& recipe, float* out, std::span<const Contribution> in, std::size_t count) {
  auto factor = static_cast<float>(recipe.op == Op::sum ? 1 : recipe.factor);
  Measured measured;
  auto whole = count / kLanes * kLanes;
  for (std::size_t at = 0; at < whole; at += kTile) {
    auto size = std::min(kTile, whole - at);
    auto part = reduce_tile<kShares, kStream, kLook>(factor, out, in, at, size);
    // Overflow of the fp32 accumulators, or a non-finite element: look again. What is in place is not there any more,
    // and stays what it is: not finite.
    if (!recipe.squares) part.squares = 0;
    if (!std::isfinite(part.squares)) part.squares = squares_of(out + at, size);
    if (!std::isfinite(part.spread) && std::none_of(in.begin(), in.end(), [&](auto& one) { return one.data == out; }))
      part.spread = spread_of<float>(in, at, size);
    measured += part;
  }
  if (whole == count) return measured;
  Contribution rest[64];  // the last elements: fewer than a vector
  std::vector<Contribution> many;
  std::span<Contribution> tail(rest, std::min<std::size_t>(in.size(), 64));
  if (in.size() > 64) {
    many.resize(in.size());
    tail = many;
  }
  for (std::size_t k = 0; k < in.size(); ++k)
    tail[k] = {static_cast<const float*>(in[k].data) + whole, in[k].share, in[k].spread_share};
  return measured += reduce_as<float>(recipe, out + whole, tail, count - whole);
}

Measured reduce_level(const Recipe& recipe, void* out, std::span<const Contribution> in, std::size_t count) {
  bool summing = recipe.op == Op::sum || recipe.op == Op::mean || recipe.op == Op::weighted_mean;
  if (recipe.dtype == Dtype::f32 && summing) {
    auto* to = static_cast<float*>(out);
    bool stream = recipe.streaming && reinterpret_cast<std::uintptr_t>(out) % (kLanes * sizeof(float)) == 0;
    Measured measured;
    auto run = [&]<bool kShares, bool kStream>() {
      if (recipe.spread)
        measured = reduce_f32<kShares, kStream, Look::everywhere>(recipe, to, in, count);
      else if (recipe.squares)
        measured = reduce_f32<kShares, kStream, Look::result>(recipe, to, in, count);
      else
        measured = reduce_f32<kShares, kStream, Look::nowhere>(recipe, to, in, count);
    };
    if (recipe.equal_shares)
      stream ? run.template operator()<false, true>() : run.template operator()<false, false>();
    else
      stream ? run.template operator()<true, true>() : run.template operator()<true, false>();
    if (stream) Vec::drain();
    return measured;
  }
  switch (recipe.dtype) {
    case Dtype::f32:
      return reduce_as<float>(recipe, out, in, count);
    case Dtype::f64:
      return reduce_as<double>(recipe, out, in, count);
    case Dtype::f16:
      return reduce_as<Half>(recipe, out, in, count);
    case Dtype::bf16:
      return reduce_as<BFloat16>(recipe, out, in, count);
    case Dtype::i8:
      return reduce_as<std::int8_t>(recipe, out, in, count);
    case Dtype::u8:
      return reduce_as<std::uint8_t>(recipe, out, in, count);
    case Dtype::i32:
      return reduce_as<std::int32_t>(recipe, out, in, count);
    case Dtype::i64:
      return reduce_as<std::int64_t>(recipe, out, in, count);
  }
  return {};
}

template <class T>
double product_as(void* kept, const void* now, std::size_t count) {
  auto* before = static_cast<T*>(kept);
  const auto* after = static_cast<const T*>(now);
  double product = 0;
  for (std::size_t i = 0; i < count; ++i) {
    product += static_cast<double>(widen(before[i])) * static_cast<double>(widen(after[i]));
    before[i] = after[i];
  }
  return product;
}

double product_f32(float* kept, const float* now, std::size_t count) {
  double product = 0;
  auto whole = count / kLanes * kLanes;
  for (std::size_t at = 0; at < whole; at += kTile) {
    auto end = std::min(at + kTile, whole);
    Vec sum = Vec::all(0);
    for (auto i = at; i < end; i += kLanes) {
      Vec x = Vec::load(now + i);
      sum = sum + Vec::load(kept + i) * x;
      x.store(kept + i);
    }
    product += sum.total();
  }
  return product + product_as<float>(kept + whole, now + whole, count - whole);
}

double product_level(Dtype dtype, void* kept, const void* now, std::size_t count) {
  switch (dtype) {
    case Dtype::f32:
      return product_f32(static_cast<float*>(kept), static_cast<const float*>(now), count);
    case Dtype::f64:
      return product_as<double>(kept, now, count);
    case Dtype::f16:
      return product_as<Half>(kept, now, count);
    case Dtype::bf16:
      return product_as<BFloat16>(kept, now, count);
    default:
      return 0;  // integers have no gradients
  }
}

void copy_level(void* to, const void* from, std::size_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  constexpr std::size_t kBytes = kLanes * sizeof(float);
  auto head = std::min(bytes, (kBytes - reinterpret_cast<std::uintptr_t>(out) % kBytes) % kBytes);
  std::memcpy(out, in, head);
  auto at = head;
  for (; at + 4 * kBytes <= bytes; at += 4 * kBytes) {
    Vec x[4];
    for (std::size_t u = 0; u < 4; ++u) x[u] = Vec::load(reinterpret_cast<const float*>(in + at + u * kBytes));
    for (std::size_t u = 0; u < 4; ++u) x[u].stream(reinterpret_cast<float*>(out + at + u * kBytes));
  }
  Vec::drain();
  std::memcpy(out + at, in + at, bytes - at);
}

}  // namespace pliant::collective::PLIANT_LEVEL
