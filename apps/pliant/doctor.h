// `pliant doctor`.
#pragma once

#include "apps/pliant/command.h"

namespace pliant::cli {

void add_doctor(CLI::App& app, Action& action);

}  // namespace pliant::cli
