// What `pliant doctor` says about other users: doors that stand open on this machine, as far as can be seen.
#pragma once

#include <vector>

#include "apps/pliant/probes.h"

namespace pliant::cli {

/// Warnings about job directories, folders that the environment names, listening addresses and core dumps; what is in
/// order is said too.
std::vector<Finding> probe_doors();

}  // namespace pliant::cli
