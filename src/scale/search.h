// How many workers to try next: functions of what was measured, and of nothing else.
#pragma once

#include <cstdint>
#include <optional>

#include "scale/condition.h"
#include "scale/throughput.h"

namespace pliant::scale {

struct SearchOptions {
  int least = 1, most = 60;
  int stride = 4;              ///< workers per step of the published search
  int passes = 3;              ///< larger sizes that must be worth it before it stops to look at smaller ones
  std::uint64_t settle = 100;  ///< steps that a size must have had before it is given up
  std::uint64_t window = 4;    ///< steps that tell a size's rate, in the short search
};

/// As published (Or et al., MLSys 2020): up in strides while that is worth it, down to where three in a row are, then
/// back to the last size that was. Long windows, because its transitions were dear.
int published_search(const Throughputs& seen, int now, const SearchOptions& options, const Condition& worth_it);

/// With transitions that cost next to nothing: doubles while that is worth it, halves the distance between the last
/// size that was and its measured neighbours, and stays. A size is measured for a few steps only, or some more where
/// noise decides; nothing: this one still is.
std::optional<int> short_search(const Throughputs& seen, int now, const SearchOptions& options,
                                const Condition& worth_it);

/// KungFu's: one worker more at a time, until one brings less than `alpha` of an average worker's share.
int add_one_search(const Throughputs& seen, int now, const SearchOptions& options, double alpha = 1.0 / 3);

/// With a model of all sizes, fitted to those that were measured: goes where `value` is largest, but at once to no more
/// than twice the most it has been at, and looks again from there. REQUIRES: points know their steps' samples.
using Value = std::function<double(const Point&)>;
int model_search(const Throughputs& seen, int now, const SearchOptions& options, const Value& value);

}  // namespace pliant::scale
