// Runs many seeds in several processes, so that one that crashes is a finding and not the end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace pliant::sim {

struct FleetOptions {
  std::uint64_t first = 0, seeds = 1000;
  std::uint64_t jobs = 2;           ///< processes
  std::uint64_t most = UINT64_MAX;  ///< failures, after which it stops
};

/// What is wrong with a seed; empty: nothing.
using RunSeed = std::function<std::string(std::uint64_t seed)>;
using OnFailure = std::function<void(std::uint64_t seed, const std::string& failure)>;

/// Calls `run` for every seed, in forked processes, and `failed` here, as failures come in. How many there were.
std::uint64_t run_fleet(const FleetOptions& options, const RunSeed& run, const OnFailure& failed);

}  // namespace pliant::sim
