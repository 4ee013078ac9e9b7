// Simulated jobs: a seed chooses the hosts, the workers, the program and the faults.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "simulation/programs.h"

namespace pliant::sim {

struct JobOptions {
  std::uint64_t seed = 0;
  bool trace = false;
  std::optional<Script::Kind> program{};  ///< else the seed chooses
  Coverage* coverage = nullptr;           ///< counts what the job goes through
};

struct JobOutcome {
  std::string failure;  ///< empty: every check held
  std::string trace;    ///< if asked for
  std::uint64_t events = 0, steps = 0, faults = 0;
  std::uint64_t salvaged = 0;        ///< contributions of the dead that somebody added to its own, by the records
  std::map<std::string, int> kinds;  ///< of faults
};

JobOutcome simulate_job(const JobOptions& options);

}  // namespace pliant::sim
