#include "apps/pliant/process.h"

#include <dirent.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "base/system.h"

namespace pliant::cli {
namespace {

struct Stat {
  char state = '?';
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
};

std::optional<Stat> stat_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  auto end = line.rfind(')');  // the name before it may hold anything
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(end + 1));
  Stat stat;
  if (!(fields >> stat.state >> stat.parent >> stat.group >> stat.session)) return std::nullopt;
  return stat;
}

bool ended(char state) { return state == 'Z' || state == 'X' || state == 'x'; }

}  // namespace

ProcessId this_process() { return {getpid(), start_time_of(getpid()).value_or(0)}; }

bool alive(const ProcessId& process) {
  if (process.pid <= 0) return false;
  auto stat = stat_of(process.pid);
  return stat && !ended(stat->state) && start_time_of(process.pid) == process.start;
}

Result<Fd> open_process(const ProcessId& process) {
  if (process.pid <= 0) return Error{Code::not_found, "no process"};
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd) return errno_error("pidfd_open", errno == ESRCH ? ENOENT : errno);
  // The descriptor holds whoever has the pid now; only the start time tells whether that is still the one meant.
  if (!alive(process)) return Error{Code::not_found, fmt::format("process {} is gone", process.pid)};
  return pidfd;
}

bool signal_process(const Fd& pidfd, int signal) {
  return syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

bool signal_group(const ProcessId& leader, const Fd& pidfd, int signal) {
  pollfd ended{pidfd.get(), POLLIN, 0};
  if (leader.pid <= 1 || poll(&ended, 1, 0) != 0 || getpgid(leader.pid) != leader.pid) return false;
  return kill(-leader.pid, signal) == 0;
}

std::vector<pid_t> ancestry_of(pid_t pid) {
  std::vector<pid_t> line;
  while (pid > 0 && line.size() < 1000) {  // bounded: parents change while we look
    line.push_back(pid);
    auto stat = stat_of(pid);
    pid = stat ? stat->parent : 0;
  }
  return line;
}

std::optional<Group> group_of(pid_t leader) {
  auto stat = stat_of(leader);
  if (!stat) return std::nullopt;
  return Group{leader, stat->session};
}

std::vector<ProcessId> members_of(const std::set<Group>& groups) {
  std::vector<ProcessId> members;
  std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (!proc || groups.empty()) return members;
  while (auto* entry = readdir(proc.get())) {
    auto pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid <= 0) continue;
    auto stat = stat_of(pid);
    if (!stat || ended(stat->state) || !groups.contains({stat->group, stat->session})) continue;
    if (auto start = start_time_of(pid)) members.push_back({pid, *start});
  }
  return members;
}

}  // namespace pliant::cli
