#include "apps/pliant/worker_env.h"

#include <unistd.h>

#include <map>

namespace pliant::cli {
namespace {

using Variables = std::map<std::string, std::string>;

void add(Variables& variables, const std::string& entry) {
  auto cut = entry.find('=');
  if (cut == std::string::npos || cut == 0) return;
  variables[entry.substr(0, cut)] = entry.substr(cut + 1);
}

/// glibc gives large blocks back to the kernel as soon as they are freed, and takes page faults when the next step
/// wants them again: a third of a small model's step. Keeping them is right for a loop that repeats itself.
constexpr const char* kKeepMemory =
    "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=67108864";

bool chose_an_allocator(const Variables& variables) {
  for (const auto& [name, value] : variables)
    if (name == "GLIBC_TUNABLES" || name == "LD_PRELOAD" || name.starts_with("MALLOC_")) return true;
  return false;
}

}  // namespace

std::string note_file(const std::string& dir, std::uint64_t id) {
  return dir + "/rank-" + std::to_string(id) + ".note";
}

std::vector<std::string> own_environment() {
  std::vector<std::string> list;
  for (char** entry = environ; entry && *entry; ++entry) list.emplace_back(*entry);
  return list;
}

std::vector<std::string> environment_of(std::uint64_t id, const WorkerEnv& wanted,
                                        const std::vector<std::string>& inherited) {
  Variables variables;
  for (const auto& entry : inherited) add(variables, entry);
  for (const auto& entry : wanted.extra) add(variables, entry);
  variables["PLIANT_JOB"] = wanted.job;
  variables["PLIANT_WORKER"] = std::to_string(id);
  variables["PLIANT_WORKERS"] = std::to_string(wanted.workers);
  variables["PLIANT_COORDINATOR"] = wanted.coordinator;
  variables["PLIANT_SEED"] = std::to_string(wanted.seed);
  variables["PLIANT_THREADS"] = std::to_string(wanted.threads);
  if (!wanted.dir.empty()) variables["PLIANT_NOTE"] = note_file(wanted.dir, id);
  if (!wanted.host.empty()) {
    variables["PLIANT_HOST"] = wanted.host;
    variables["PLIANT_SECRET_FILE"] = wanted.secret_file;
    if (!wanted.interface_name.empty()) variables["PLIANT_INTERFACE"] = wanted.interface_name;
    if (!wanted.ports.empty()) variables["PLIANT_PORTS"] = wanted.ports;
    if (!wanted.store.empty()) variables["PLIANT_STORE"] = wanted.store;
    variables["PLIANT_NETWORK"] = wanted.trusted_network ? "trusted" : "protected";
  } else if (!wanted.dir.empty()) {
    variables["PLIANT_DECISIONS"] = wanted.dir;
  }
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"})
    variables.try_emplace(name, std::to_string(wanted.threads));
  if (!chose_an_allocator(variables)) variables["GLIBC_TUNABLES"] = kKeepMemory;
  std::vector<std::string> list;
  for (const auto& [name, value] : variables) list.push_back(name + "=" + value);
  return list;
}

}  // namespace pliant::cli
