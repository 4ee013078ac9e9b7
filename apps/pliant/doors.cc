#include "apps/pliant/doors.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "apps/pliant/hosts_flags.h"
#include "apps/pliant/jobs.h"
#include "apps/pliant/process.h"
#include "base/own_files.h"
#include "base/system.h"
#include "net/tcp.h"

namespace pliant::cli {
namespace {

using Level = Finding::Level;

/// A directory that a variable of the environment names; nothing if there is none.
void look_at_folder(std::vector<Finding>& findings, const std::string& name, const char* variable,
                    const std::string& advice) {
  auto path = env(variable);
  if (!path) return;
  auto own = OwnDirectory::open(*path, Links::own);
  if (own.ok())
    findings.push_back({name, Level::ok, fmt::format("only you can write to {}", *path), ""});
  else if (own.error().code == Code::refused)
    findings.push_back({name, Level::warn, fmt::format("{}: {}", variable, own.error().message), advice});
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

/// Other machines can knock, although none of them has a part in the job.
bool listens_without_need(const JobPlan& plan) {
  if (!plan.spread() || plan.hosts.empty() || !plan.discovery.empty() || !plan.supply.provider.empty()) return false;
  auto endpoint = net::parse_endpoint(plan.endpoint);
  return endpoint.ok() && !is_loopback(endpoint.value().address) &&
         std::ranges::all_of(plan.hosts, [](const HostSlots& host) { return is_this_host(host.name); });
}

void look_at_jobs(std::vector<Finding>& findings) {
  auto listed = list_own_jobs();
  if (!listed.ok()) return;  // the finding about the job directory says why
  for (const auto& [name, why] : listed.value().refused)
    findings.push_back(
        {"foreign job", Level::warn, why.message, fmt::format("'{}' is left alone: see who made it, remove it", name)});
  for (const auto& job : listed.value().jobs)
    if (listens_without_need(job.record.plan))
      findings.push_back({"listening", Level::warn,
                          fmt::format("job '{}' listens at {}, but runs on this machine only", job.record.name,
                                      job.record.plan.endpoint),
                          "'--address 127.0.0.1' keeps other machines away"});
}

/// Agents and coordinators leave none, where that can be had. Workers are the user's own programs.
Finding core_dumps_found() {
  rlimit limit{};
  getrlimit(RLIMIT_CORE, &limit);
  if (limit.rlim_cur == 0) return {"core dumps", Level::ok, "switched off", ""};
  auto who = proc_hides_processes() ? "workers, agents and coordinators" : "workers";
  return {"core dumps", Level::warn, fmt::format("those of {} hold what -x passes to a job", who),
          "'ulimit -c 0' before 'pliant run', if such values are secret"};
}

}  // namespace

std::vector<Finding> probe_doors() {
  std::vector<Finding> findings;
  look_at_folder(findings, "runtime dir", "XDG_RUNTIME_DIR", "jobs are kept elsewhere: see 'job directory'");
  look_at_folder(findings, "records", "PLIANT_RECORD", "jobs that are told to write there are refused");
  look_at_folder(findings, "checkpoints", "PLIANT_CHECKPOINT", "jobs that are told to write there are refused");
  look_at_jobs(findings);
  findings.push_back(core_dumps_found());
  return findings;
}

}  // namespace pliant::cli
