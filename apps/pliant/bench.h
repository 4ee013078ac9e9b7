// `pliant bench`.
#pragma once

#include "apps/pliant/command.h"

namespace pliant::cli {

void add_bench(CLI::App& app, Action& action);

}  // namespace pliant::cli
