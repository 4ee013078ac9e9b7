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

/// Running jobs in all of this user's bases. Code::refused if $PLIANT_DIR is none that can be believed.
Result<JobList> list_own_jobs();
/// The running job of that name, or the only one if the name is empty. Code::not_found with the names of those that
/// run; Code::refused if others may have made what is called so.
Result<Job> choose_job(const std::string& name);

}  // namespace pliant::cli
