#include "apps/pliant/probes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "apps/pliant/command.h"
#include "apps/pliant/doors.h"
#include "apps/pliant/job_base.h"
#include "apps/pliant/job_dir.h"
#include "base/bytes.h"
#include "base/fd.h"
#include "base/system.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace pliant::cli {
namespace {

using Level = Finding::Level;

constexpr char kFashion[] = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz";
constexpr std::uint64_t kLittleMemory = 1ull << 30;
constexpr long kFutexWaitv = 449;

Finding version_found() { return {"pliant", Level::ok, fmt::format("version {}", version()), ""}; }

Finding compiler_found() {
#if defined(__clang__)
  return {"compiler", Level::ok, fmt::format("clang {}", __clang_version__), ""};
#else
  return {"compiler", Level::ok, fmt::format("g++ {}", __VERSION__), ""};
#endif
}

Finding torch_found() {
#if defined(PLIANT_WITH_TORCH)
  return {"libtorch", Level::ok, "built with LibTorch", ""};
#else
  return {"libtorch", Level::ok, "built without LibTorch: pliant.h only", ""};
#endif
}

Finding kernel_found() {
  utsname name{};
  uname(&name);
  return {"kernel", Level::ok, fmt::format("{} {} {}", name.sysname, name.release, name.machine), ""};
}

Finding cpu_found() {
  if (cpu_level() == CpuLevel::baseline)
    return {"cpu", Level::warn, "baseline: no AVX2 kernels", "reductions will be slower; is PLIANT_CPU set?"};
  return {"cpu", Level::ok, std::string(name_of(cpu_level())), ""};
}

Finding cores_found() {
  auto present = sysconf(_SC_NPROCESSORS_ONLN);
  auto usable = usable_cores();
  auto detail = fmt::format("{} usable of {}", usable, present);
  if (usable < present) detail += " (affinity or a cgroup quota holds the rest back)";
  return {"cores", Level::ok, detail, ""};
}

/// "MemAvailable:   1234 kB" of /proc/meminfo, in bytes.
std::uint64_t memory_line(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  return 0;
}

Finding memory_found() {
  auto free = memory_line("MemAvailable");
  auto detail = fmt::format("{} available of {}", format_bytes(free), format_bytes(memory_line("MemTotal")));
  if (free < kLittleMemory) return {"memory", Level::warn, detail, "little memory is left: stop other programs"};
  return {"memory", Level::ok, detail, ""};
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // "max" is no number
  return value;
}

/// The tightest memory limit between this process's cgroup and the root, v1 and v2.
std::optional<std::uint64_t> cgroup_memory() {
  std::optional<std::uint64_t> tightest;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    bool v2 = line.starts_with("0::");
    if (!v2 && line.find(":memory:") == std::string::npos) continue;
    auto path = line.substr(line.rfind(':') + 1);
    for (;;) {
      auto limit = number_in(v2 ? "/sys/fs/cgroup" + path + "/memory.max"
                                : "/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes");
      if (limit && (!tightest || *limit < *tightest)) tightest = limit;
      if (path.empty() || path == "/") break;
      path.erase(path.rfind('/'));
    }
  }
  return tightest;
}

Finding cgroup_found() {
  auto limit = cgroup_memory();
  if (!limit || *limit >= memory_line("MemTotal")) return {"cgroup memory", Level::ok, "no limit", ""};
  auto level = *limit < kLittleMemory ? Level::warn : Level::ok;
  return {"cgroup memory", level, fmt::format("limited to {}", format_bytes(*limit)),
          level == Level::ok ? "" : "little for training: raise the limit of the container or the job"};
}

Finding seals_found() {
  Fd memory(memfd_create("pliant-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory && fcntl(memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0)
    return {"sealed memfd", Level::ok, "F_SEAL_FUTURE_WRITE works", ""};
  return {"sealed memfd", Level::problem, errno_error("memfd with F_SEAL_FUTURE_WRITE").message,
          "Linux 5.1 or newer is needed: workers share memory this way"};
}

Finding pidfd_found() {
  Fd self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (self) return {"pidfd", Level::ok, "pidfd_open works", ""};
  return {"pidfd", Level::problem, errno_error("pidfd_open").message,
          "Linux 5.4 or newer is needed, or a sandbox that allows it: deaths are noticed this way"};
}

Finding futex_found() {
  // No words to wait on is an invalid argument for a kernel that knows the call.
  if (syscall(kFutexWaitv, nullptr, 0, 0, nullptr, 0) < 0 && errno == EINVAL)
    return {"futex_waitv", Level::ok, "works", ""};
  return {"futex_waitv", Level::warn, errno_error("futex_waitv").message,
          "Linux 5.16 or newer waits without polling; steps will cost up to a millisecond more"};
}

Finding base_found() {
  auto chosen = choose_base();
  if (!chosen.ok())
    return {"job directory", Level::problem, chosen.error().message, "set PLIANT_DIR to a folder of yours"};
  const auto& [base, remark] = chosen.value();
  auto probe = fmt::format("{}/.doctor-{}", base, getpid());
  auto written = write_atomically(probe, "");
  unlink(probe.c_str());
  if (!written.ok())
    return {"job directory", Level::problem, written.error().message, "set PLIANT_DIR to a folder of yours"};
  if (!remark.empty())
    return {"job directory", Level::warn, remark, "jobs are found there as well; see who made the other one"};
  return {"job directory", Level::ok, base + " is writable, by you alone", ""};
}

Finding shm_found() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0) return {"/dev/shm", Level::ok, "not there; Pliant does not need it", ""};
  return {"/dev/shm", Level::ok,
          fmt::format("{} free (Pliant does not need it)", format_bytes(info.f_bavail * info.f_frsize)), ""};
}

Finding files_found() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  auto detail = fmt::format("{} (at most {})", limit.rlim_cur, limit.rlim_max);
  if (limit.rlim_max < 1024) return {"open files", Level::warn, detail, "raise 'ulimit -n' for jobs of many workers"};
  return {"open files", Level::ok, detail, ""};
}

Finding dataset_found() {
  if (access(kFashion, R_OK) == 0) return {"fashion-mnist", Level::ok, "/usr/share/datasets/fashion-mnist", ""};
  return {"fashion-mnist", Level::warn, "not installed", "the examples want it: apt install dataset-fashion-mnist"};
}

}  // namespace

std::string_view name_of(Level level) {
  constexpr std::string_view kNames[] = {"ok", "warn", "problem"};
  return kNames[static_cast<int>(level)];
}

std::vector<Finding> probe_all() {
  std::vector<Finding> all = {version_found(), compiler_found(), torch_found(),  kernel_found(), cpu_found(),
                              cores_found(),   memory_found(),   cgroup_found(), seals_found(),  pidfd_found(),
                              futex_found(),   base_found(),     shm_found(),    files_found(),  dataset_found()};
  std::ranges::move(probe_doors(), std::back_inserter(all));
  return all;
}

}  // namespace pliant::cli
