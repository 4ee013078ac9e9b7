// `pliant ps`, `pliant status` and `pliant stop`.
#pragma once

#include <optional>
#include <string>

#include "apps/pliant/command.h"
#include "apps/pliant/job_dir.h"

namespace pliant::cli {

void add_ps(CLI::App& app, Action& action);
void add_status(CLI::App& app, Action& action);
void add_stop(CLI::App& app, Action& action);

/// The running job of that name, or the only one if the name is empty. Code::not_found with the names of those that
/// run.
Result<Job> choose_job(const std::string& base, const std::string& name);

}  // namespace pliant::cli
