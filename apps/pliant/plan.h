// `pliant plan`.
#pragma once

#include "apps/pliant/command.h"

namespace pliant::cli {

void add_plan(CLI::App& app, Action& action);

}  // namespace pliant::cli
