// What srun and mpirun tell the processes that they start: how many there are, which one this is, and of what.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace pliant::session {

/// One process of several that a launcher has started together.
struct Launch {
  std::string launcher;  ///< "srun", "mpirun" or "mpiexec"
  std::string job;       ///< equal on these processes, and on no others that may run at the same time; fit for a file
  int rank = 0;
  int size = 1;
  bool operator==(const Launch&) const = default;
};

/// An environment variable, if set and not empty.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

/// What the environment says. Of several launchers the innermost counts: an mpirun within a Slurm job starts the
/// processes, not Slurm. Nothing: this process was started alone, or PLIANT_LAUNCH is "none". Code::invalid for an
/// environment that makes no sense: to train alone in each of several processes is never what was meant.
Result<std::optional<Launch>> launch_from(const Lookup& lookup);

}  // namespace pliant::session
