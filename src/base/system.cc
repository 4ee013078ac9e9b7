#include "base/system.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/hash.h"
#include "base/result.h"

namespace pliant {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Cores that a quota of `quota` microseconds per `period` microseconds is worth.
std::optional<double> share(const std::string& quota, const std::string& period) {
  char* end = nullptr;
  double q = std::strtod(quota.c_str(), &end);
  if (end == quota.c_str() || q <= 0) return std::nullopt;  // "max" and -1 mean no limit
  double p = std::strtod(period.c_str(), nullptr);
  if (p <= 0) return std::nullopt;
  return q / p;
}

/// Calls `visit(folder, v2)` for this process's cgroup of a controller and for all its ancestors.
template <class Visit>
void for_cgroups(const std::string& controller, const Visit& visit) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    auto first = line.find(':');
    auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    auto controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    bool v2 = controllers == ",,";
    if (!v2 && controllers.find("," + controller + ",") == std::string::npos) continue;
    auto root = v2 ? std::string("/sys/fs/cgroup") : "/sys/fs/cgroup/" + controller;
    std::string path = line.substr(second + 1);
    for (;;) {
      visit(root + path, v2);
      if (path.empty() || path == "/") break;
      path.erase(path.rfind('/'));
    }
  }
}

/// The tightest CPU quota on the path from this process's cgroup to the root.
std::optional<double> cgroup_cores() {
  std::optional<double> tightest;
  for_cgroups("cpu", [&](const std::string& folder, bool v2) {
    std::optional<double> cores;
    if (v2) {
      std::istringstream both(first_line(folder + "/cpu.max"));
      std::string quota;
      std::string period;
      both >> quota >> period;
      cores = share(quota, period);
    } else {
      cores = share(first_line(folder + "/cpu.cfs_quota_us"), first_line(folder + "/cpu.cfs_period_us"));
    }
    if (cores && (!tightest || *cores < *tightest)) tightest = cores;
  });
  return tightest;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  auto line = first_line(path);
  char* end = nullptr;
  auto value = std::strtoull(line.c_str(), &end, 10);
  if (end == line.c_str()) return std::nullopt;  // missing, or "max"
  return value;
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  if (auto quota = cgroup_cores()) cores = std::min(cores, static_cast<int>(*quota + 0.999));
  return std::max(cores, 1);
}

std::uint64_t available_memory() {
  std::uint64_t available = 0;
  std::ifstream info("/proc/meminfo");
  for (std::string name, rest; info >> name && std::getline(info, rest);)
    if (name == "MemAvailable:") available = std::strtoull(rest.c_str(), nullptr, 10) * 1024;
  for_cgroups("memory", [&](const std::string& folder, bool v2) {
    if (auto left = memory_left_in(folder, v2)) available = std::min(available, *left);
  });
  return available;
}

std::optional<std::uint64_t> memory_left_in(const std::string& cgroup, bool v2) {
  auto limit = number_in(cgroup + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  auto used = number_in(cgroup + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  std::uint64_t reclaimable = 0;
  std::ifstream stat(cgroup + "/memory.stat");
  std::string name;
  for (std::uint64_t value = 0; stat >> name >> value;)
    if (name == (v2 ? "inactive_file" : "total_inactive_file") || name == (v2 ? "active_file" : "total_active_file") ||
        name == "slab_reclaimable")
      reclaimable += value;
  auto kept = *used - std::min(*used, reclaimable);
  return *limit - std::min(*limit, kept);
}

CpuLevel cpu_level() {
  static const CpuLevel level = [] {
    auto best = CpuLevel::baseline;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) best = CpuLevel::avx2;
    if (best == CpuLevel::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
      best = CpuLevel::avx512;
#endif
    auto wanted = env("PLIANT_CPU").value_or("");
    for (auto lower : {CpuLevel::baseline, CpuLevel::avx2})
      if (wanted == name_of(lower)) best = std::min(best, lower);
    return best;
  }();
  return level;
}

bool has_wide_words() {
#if defined(__x86_64__)
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
  }();
  return has;
#else
  return false;
#endif
}

std::string_view name_of(CpuLevel level) {
  constexpr std::string_view kNames[] = {"baseline", "avx2", "avx512"};
  return kNames[static_cast<int>(level)];
}

void lower_priority() {
  constexpr int kNicer = 10;  // about a tenth of the share of this process's other threads
  auto process = getpriority(PRIO_PROCESS, static_cast<id_t>(getpid()));
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), process + kNicer);
}

std::optional<std::string> env(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> start_time_of(int pid) {
  auto line = first_line("/proc/" + std::to_string(pid) + "/stat");
  // The second field is the program's name in parentheses and may hold anything: count from behind it.
  auto end = line.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(end + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  if (field.empty()) return std::nullopt;
  return std::strtoull(field.c_str(), nullptr, 10);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || !name[0]) return "localhost";
  return name.data();
}

std::string host_identity() {
  auto about = first_line("/proc/sys/kernel/random/boot_id");
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    struct stat found {};
    if (stat(space, &found) == 0) about += fmt::format(" {}:{}", found.st_dev, found.st_ino);
  }
  return fmt::format("{:.64}-{:012x}", host_name(), hash_name(about) >> 16);
}

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  PLIANT_ASSERT(getrandom(&value, sizeof(value), 0) == sizeof(value));
  return value;
}

}  // namespace pliant
