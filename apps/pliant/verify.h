// `pliant verify`.
#pragma once

#include "apps/pliant/command.h"

namespace pliant::cli {

void add_verify(CLI::App& app, Action& action);

}  // namespace pliant::cli
