// Where workers come from and what they cost: --provider, --trace, --notice-url, --price, --class.
#pragma once

#include <string>

#include "apps/pliant/command.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/slurm_queue.h"

namespace pliant::cli {

struct SupplyFlags {
  std::string provider;    ///< "slurm:partition=spot"; empty: this machine, or the hosts that are named
  std::string trace;       ///< a file: what was to be had, and at which price
  std::string notice_url;  ///< that says when this machine is taken away
  std::string price;       ///< of a worker's hour, by class
  std::string kind;        ///< the price class of workers on this machine
};
void add_supply_flags(CLI::App& run, SupplyFlags& flags);
/// One line on what does not fit together, or nothing. `hosts`, `workers`: the user has named some.
std::string contradiction_in(const SupplyFlags& flags, bool hosts, bool workers);
/// Files are looked at before anything is started: Failure says what is wrong.
void plan_supply(const SupplyFlags& flags, JobPlan& plan);
/// What "slurm:…" asks of Slurm; Code::invalid for anything else.
Result<SlurmOptions> slurm_of(const std::string& provider);

}  // namespace pliant::cli
