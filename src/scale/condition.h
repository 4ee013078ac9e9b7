// Is a larger number of workers worth it? One question, asked of two measured points.
#pragma once

#include <functional>

#include "scale/throughput.h"
#include "scale/utility.h"

namespace pliant::scale {

using Condition = std::function<bool(const Point& fewer, const Point& more)>;

/// What each added worker brings, compared with what each of those there brings: ((R' - R) / d) / (R / k).
double scaling_efficiency(const Point& fewer, const Point& more);
/// More than `least` (Or et al., MLSys 2020: condition 1).
Condition efficient(double least);

/// What is left of a job, and what it costs.
struct Remaining {
  double batches = 0;  ///< to go
  double batch = 0;    ///< samples in each
  double elapsed = 0;  ///< seconds so far
  double price = 0;    ///< of a worker's second
};
/// When the job would be done, and what the rest of it would cost.
double end_of(const Remaining& job, const Point& point);
double cost_of(const Remaining& job, const Point& point);
/// More value than cost (condition 2).
bool worth_its_cost(const Utility& utility, const Remaining& job, const Point& fewer, const Point& more);

}  // namespace pliant::scale
