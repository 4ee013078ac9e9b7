// `pliant coordinator`: a job's coordinator as a process of its own, which needs nothing of the agent that started it.
// Not for people; the agent runs it, and runs it again should it die.
//
// It ends by itself when the job is over and nobody is connected, or when there has been neither agent nor worker for
// three seconds.
#pragma once

#include "apps/pliant/command.h"

namespace pliant::cli {

/// The exit status when the job has a coordinator already.
inline constexpr int kCoordinatorThere = 3;

void add_coordinator(CLI::App& app, Action& action);

}  // namespace pliant::cli
