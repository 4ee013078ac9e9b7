#include "apps/pliant/process.h"

#include <dirent.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
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

constexpr unsigned kToGroup = 1U << 2;  // PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9

int send_signal(const Fd& pidfd, int signal, unsigned flags) {
  return static_cast<int>(syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, flags));
}

bool has_ended(const Fd& pidfd) {
  pollfd ended{pidfd.get(), POLLIN, 0};
  return poll(&ended, 1, 0) != 0;
}

/// REQUIRES: the leader was not reaped, so that the number is its group's.
bool signal_group_of(pid_t leader, const Fd& pidfd, int signal) {
  if (leader <= 1) return false;
  if (send_signal(pidfd, signal, kToGroup) == 0) return true;
  return errno == EINVAL && kill(-leader, signal) == 0;
}

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
  if (process.pid <= 1) return Error{Code::not_found, fmt::format("no job has a process {}", process.pid)};
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd) return errno_error("pidfd_open", errno == ESRCH ? ENOENT : errno);
  // The descriptor holds whoever has the pid now; only the start time tells whether that is still the one meant.
  if (!alive(process)) return Error{Code::not_found, fmt::format("process {} is gone", process.pid)};
  return pidfd;
}

bool signal_process(const Fd& pidfd, int signal) { return send_signal(pidfd, signal, 0) == 0; }

bool signal_group(const ProcessId& leader, const Fd& pidfd, int signal) {
  if (leader.pid <= 1 || has_ended(pidfd) || getpgid(leader.pid) != leader.pid) return false;
  return signal_group_of(leader.pid, pidfd, signal);
}

bool signal_child_group(pid_t child, const Fd& pidfd, int signal) { return signal_group_of(child, pidfd, signal); }

void kill_child(pid_t child) {
  PLIANT_ASSERT(child > 1);
  if (getpgid(child) == child) kill(-child, SIGKILL);
  kill(child, SIGKILL);
}

bool proc_hides_processes() {
  std::ifstream mounts("/proc/self/mounts");
  for (std::string device, place, kind, options, rest; mounts >> device >> place >> kind >> options;) {
    std::getline(mounts, rest);
    auto at = options.find("hidepid=");
    if (place != "/proc" || at == std::string::npos) continue;
    auto value = options.substr(at + 8, options.find(',', at) - at - 8);
    if (value != "0" && value != "off") return true;
  }
  return false;
}

void leave_no_core_dumps() {
  if (!proc_hides_processes()) prctl(PR_SET_DUMPABLE, 0);
}

bool is_unused(pid_t pid) { return pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH); }

std::optional<uid_t> user_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string key;
    uid_t real = 0;
    uid_t effective = 0;
    if (fields >> key && key == "Uid:" && fields >> real >> effective) return effective;
  }
  return std::nullopt;
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

bool is_empty(const Group& group) { return group.group <= 1 || (kill(-group.group, 0) != 0 && errno == ESRCH); }

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
