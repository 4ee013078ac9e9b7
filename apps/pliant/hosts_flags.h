// The flags of `pliant run` that spread a job over several hosts.
#pragma once

#include <string>
#include <vector>

#include "apps/pliant/command.h"
#include "apps/pliant/job_dir.h"
#include "apps/pliant/store_flags.h"

namespace pliant::cli {

struct HostsFlags {
  std::string hosts;  ///< "a:2,b"
  std::string hostfile;
  std::string discovery;  ///< a script that names them, again and again
  std::string via;
  std::string pliant;
  std::string address;
  std::string interface_name;
  std::string ports;
  StoreFlags store;
  std::string network = "protected";  ///< or "trusted"
};

void add_hosts_flags(CLI::App& run, HostsFlags& flags);

/// "a:2,b:4,c": a host without a number has one slot.
Result<std::vector<HostSlots>> parse_hosts(const std::string& text);
/// One host per line, as "name slots=2", "name:2" or "name"; '#' begins a comment.
Result<std::vector<HostSlots>> read_hostfile(const std::string& path);
/// The hosts that the user named, or that the script names now; none if all runs here. Throws what does not fit
/// together.
std::vector<HostSlots> chosen_hosts(const HostsFlags& flags);

/// Fills in where the coordinator will be reached, at a port that is free now.
void plan_hosts(const HostsFlags& flags, std::vector<HostSlots> hosts, JobPlan& plan);
/// Makes the secret of a job on several hosts, and the ticket for agents.
Status write_secret(const std::string& dir, const JobRecord& record);

/// "localhost", or what this machine is called: nothing needs to lead there.
bool is_this_host(const std::string& name);
/// The words of `via` with {host} replaced.
std::vector<std::string> words_of(const std::string& via, const std::string& host);

}  // namespace pliant::cli
