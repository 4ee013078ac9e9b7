// `pliant chaos`.
#pragma once

#include "apps/pliant/command.h"

namespace pliant::cli {

void add_chaos(CLI::App& app, Action& action);

}  // namespace pliant::cli
