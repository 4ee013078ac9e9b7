// What every all-reduce must give, for every type and operation.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "collective/group.h"

namespace pliant::collective {

/// Small whole numbers, so that every order of summation and every type gives the same exact result.
template <class T>
T value_of(double x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    float f = static_cast<float>(x);
    std::uint32_t bits;
    std::memcpy(&bits, &f, 4);
    return {static_cast<std::uint16_t>(bits >> 16)};
  } else if constexpr (std::is_same_v<T, Half>) {
    if (x == 0) return {0};
    int exponent = 0;
    double mantissa = std::frexp(std::fabs(x), &exponent);  // in [0.5, 1)
    auto fraction = static_cast<std::uint16_t>((mantissa * 2 - 1) * 1024);
    return {static_cast<std::uint16_t>((x < 0 ? 0x8000 : 0) | ((exponent + 14) << 10) | fraction)};
  } else {
    return static_cast<T>(x);
  }
}

inline double input_at(int rank, std::size_t i) {
  return static_cast<double>((i * 7 + static_cast<std::size_t>(rank) * 3) % 5);
}

inline double expected_at(Op op, int ranks, std::size_t i) {
  double value = input_at(0, i), weighted = 0, weights = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    double x = input_at(rank, i);
    weighted += x * (rank + 1);
    weights += rank + 1;
    if (rank == 0) continue;
    if (op == Op::min)
      value = std::min(value, x);
    else if (op == Op::max)
      value = std::max(value, x);
    else if (op == Op::product)
      value *= x;
    else
      value += x;
  }
  if (op == Op::mean) return value / ranks;
  if (op == Op::weighted_mean) return weighted / weights;
  return value;
}

template <class T>
bool close(T got, double want) {
  double x = 0;
  if constexpr (std::is_same_v<T, BFloat16>) {
    std::uint32_t bits = static_cast<std::uint32_t>(got.bits) << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    x = f;
    return std::fabs(x - want) <= std::fabs(want) / 100 + 1e-6;
  } else if constexpr (std::is_same_v<T, Half>) {
    int exponent = (got.bits >> 10) & 31;
    x = exponent ? std::ldexp(1 + (got.bits & 1023) / 1024.0, exponent - 15) : std::ldexp(got.bits & 1023, -24);
    if (got.bits & 0x8000) x = -x;
    return std::fabs(x - want) <= std::fabs(want) / 500 + 1e-6;
  } else if constexpr (std::is_integral_v<T>) {
    if (std::fabs(want) >= std::ldexp(1, sizeof(T) * 8 - 1)) return true;  // products overflow: they wrap
    return std::fabs(static_cast<double>(got) - want) < 1;
  } else {
    return std::fabs(static_cast<double>(got) - want) <= std::fabs(want) * 1e-5 + 1e-6;
  }
}

/// `means_of_integers`: also those of integers, which are not to be had between hosts.
template <class T>
void check_everything(Group& group, bool registered, bool means_of_integers = true) {
  int ranks = group.size();
  for (auto op : {Op::sum, Op::mean, Op::weighted_mean, Op::min, Op::max, Op::product})
    for (std::size_t count : {1UL, 37UL, 5000UL, 200'001UL}) {
      bool mean = op == Op::weighted_mean || (op == Op::mean && sizeof(T) == 1);
      if (!means_of_integers && std::is_integral_v<T> && mean) continue;
      if (count > 5000 && kDtypeOf<T> != Dtype::f32) continue;  // several stripes and chunks: once is enough
      auto name = std::string(name_of(kDtypeOf<T>)) + "/" + std::string(name_of(op)) + "/" + std::to_string(count);
      Request request{.name = name, .dtype = kDtypeOf<T>, .op = op, .count = count};
      request.weight = op == Op::weighted_mean ? group.rank() + 1 : 1;
      std::vector<T> plain(count);
      std::shared_ptr<Region> region;
      if (registered) {
        region = group.create_region(name, count * sizeof(T)).or_throw();
        request.region = region;
      } else {
        request.in = request.out = plain.data();
      }
      for (int round = 0; round < 3; ++round) {
        auto* in = registered ? reinterpret_cast<T*>(region->input()) : plain.data();
        for (std::size_t i = 0; i < count; ++i) in[i] = value_of<T>(input_at(group.rank(), i + round));
        auto operation = group.submit(request).or_throw();
        group.wait(operation).or_throw();
        const auto* out = registered ? static_cast<const T*>(operation->result()) : plain.data();
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_TRUE(close(out[i], expected_at(op, ranks, i + round))) << name << " at " << i << " of " << ranks;
        if (!registered || ranks == 1) continue;
        for (std::size_t i = 0; i < count; i += 997)  // out of place: the input is untouched
          ASSERT_TRUE(close(in[i], input_at(group.rank(), i + round)));
      }
    }
}

}  // namespace pliant::collective
