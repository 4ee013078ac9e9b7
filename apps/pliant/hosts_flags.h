// The flags of `pliant run` that spread a job over several hosts.
#pragma once

#include <string>
#include <vector>

#include "apps/pliant/command.h"
#include "apps/pliant/job_dir.h"

namespace pliant::cli {

struct HostsFlags {
  std::string hosts;  ///< "a:2,b"
  std::string hostfile;
  std::string via;
  std::string address;
  std::string interface_name;
};

void add_hosts_flags(CLI::App& run, HostsFlags& flags);

/// "a:2,b:4,c": a host without a number has one slot.
Result<std::vector<HostSlots>> parse_hosts(const std::string& text);
/// One host per line, as "name slots=2", "name:2" or "name"; '#' begins a comment.
Result<std::vector<HostSlots>> read_hostfile(const std::string& path);
/// The hosts that the user named; none if all runs here. Throws what does not fit together.
std::vector<HostSlots> chosen_hosts(const HostsFlags& flags);

/// Fills in where the coordinator will be reached, at a port that is free now.
void plan_hosts(const HostsFlags& flags, std::vector<HostSlots> hosts, JobPlan& plan);
/// Makes the secret of a job on several hosts.
Status write_secret(const std::string& dir);

}  // namespace pliant::cli
