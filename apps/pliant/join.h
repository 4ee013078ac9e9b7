// `pliant run --join`: the agent of one host of several.
#pragma once

#include "apps/pliant/run.h"

namespace pliant::cli {

/// There is an agent for that job on this host already.
inline constexpr int kAgentThere = 4;

/// Asks the job's coordinator what to start, and serves it to the job's end. Returns the exit status. Throws if the job
/// cannot be reached.
int join_job(RunOptions options);

}  // namespace pliant::cli
