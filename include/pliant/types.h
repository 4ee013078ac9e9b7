// The few types that every public header and every module shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pliant {

/// Element types that can be reduced. fp16 and bf16 are accumulated in fp32 and rounded once.
enum class Dtype : std::uint8_t { f32, f64, f16, bf16, i8, u8, i32, i64 };
inline constexpr int kDtypes = 8;

/// How contributions become one value. A contribution of weight 0 takes no part in any of them.
enum class Op : std::uint8_t {
  sum,
  mean,           ///< sum / number of contributors; integers are cut towards zero
  weighted_mean,  ///< sum of weight·value / sum of weights
  min,
  max,
  product,
};
inline constexpr int kOps = 6;

constexpr std::size_t size_of(Dtype type) {
  switch (type) {
    case Dtype::f64:
    case Dtype::i64:
      return 8;
    case Dtype::f32:
    case Dtype::i32:
      return 4;
    case Dtype::f16:
    case Dtype::bf16:
      return 2;
    case Dtype::i8:
    case Dtype::u8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(Dtype type) {
  constexpr std::string_view kNames[kDtypes] = {"f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64"};
  return kNames[static_cast<int>(type)];
}

constexpr std::string_view name_of(Op op) {
  constexpr std::string_view kNames[kOps] = {"sum", "mean", "weighted_mean", "min", "max", "product"};
  return kNames[static_cast<int>(op)];
}

/// How a worker's part in its job ended.
enum class Outcome : std::uint8_t {
  running,   ///< it has not ended
  finished,  ///< the loop did what it was asked for, or the program left the loop by itself
  stopped,   ///< the whole job was told to stop
  left,      ///< this worker was told to leave, or is not needed any more
  failed,    ///< an exception ended the session
};
inline constexpr int kOutcomes = 5;

constexpr std::string_view name_of(Outcome outcome) {
  constexpr std::string_view kNames[kOutcomes] = {"running", "finished", "stopped", "left", "failed"};
  return kNames[static_cast<int>(outcome)];
}

/// Storage for 16-bit floats where the language has none.
struct Half {
  std::uint16_t bits = 0;
};
struct BFloat16 {
  std::uint16_t bits = 0;
};

template <class T>
inline constexpr bool kReducible = false;
template <class T>
inline constexpr Dtype kDtypeOf = Dtype::u8;
#define PLIANT_DTYPE(type, value)                \
  template <>                                    \
  inline constexpr bool kReducible<type> = true; \
  template <>                                    \
  inline constexpr Dtype kDtypeOf<type> = value;
PLIANT_DTYPE(float, Dtype::f32)
PLIANT_DTYPE(double, Dtype::f64)
PLIANT_DTYPE(Half, Dtype::f16)
PLIANT_DTYPE(BFloat16, Dtype::bf16)
PLIANT_DTYPE(std::int8_t, Dtype::i8)
PLIANT_DTYPE(std::uint8_t, Dtype::u8)
PLIANT_DTYPE(std::int32_t, Dtype::i32)
PLIANT_DTYPE(std::int64_t, Dtype::i64)
#undef PLIANT_DTYPE

/// What went wrong, coarse enough to act on.
enum class Code : std::uint8_t {
  invalid,    ///< the caller asked for something that makes no sense
  not_found,  ///< a file, job or program that is not there
  io,         ///< the operating system said no
  protocol,   ///< bytes that are not ours, or of another version
  refused,    ///< a member or job said no
  mismatch,   ///< ranks disagree on a shape, a type, a name or a model
  peer_lost,  ///< another worker died or left
  aborted,    ///< the wait was given up because the view was fenced
  diverged,   ///< replicas that must be bit-identical are not
  internal,   ///< a bug in Pliant
};

constexpr std::string_view name_of(Code code) {
  constexpr std::string_view kNames[] = {"invalid",  "not_found", "io",      "protocol", "refused",
                                         "mismatch", "peer_lost", "aborted", "diverged", "internal"};
  return kNames[static_cast<int>(code)];
}

/// The only exception type that crosses the public API.
class Failure : public std::runtime_error {
 public:
  Failure(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

}  // namespace pliant
