// How long a job made no step after an event, from the times at which its steps were recorded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace pliant::cli::chaos {

/// When anybody recorded a step first.
struct StepTime {
  double t = 0;  ///< Unix seconds
  std::uint64_t epoch = 0;
};

/// By (lineage, step).
using StepTimes = std::map<std::pair<std::uint64_t, std::uint64_t>, StepTime>;

/// For each event (Unix seconds, ascending) the longest time in milliseconds between two steps that follow each other:
/// of those between which the event happened, and of those that follow until the next event, for ten seconds at most.
/// Left out are the last step of an epoch, whose record waits for the evaluation, and restarts from a checkpoint.
/// Nothing where no such pair of steps is recorded.
std::vector<std::optional<double>> gaps_after(const StepTimes& steps, const std::vector<double>& events);
/// The median time between two steps, in milliseconds; 0 if there are none.
double usual_step(const StepTimes& steps);

/// The value that so many of them (0 to 1) do not exceed. REQUIRES: there are some.
double quantile(std::vector<double> values, double part);

}  // namespace pliant::cli::chaos
