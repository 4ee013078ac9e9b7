// `pliant resize`: asks a job's coordinator for another number of workers.
#pragma once

#include "apps/pliant/command.h"

namespace pliant::cli {

void add_resize(CLI::App& app, Action& action);

}  // namespace pliant::cli
