// Processes by name that is never reused: a pid together with its start time.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace pliant::cli {

struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start = 0;  ///< clock ticks since boot
  bool operator==(const ProcessId&) const = default;
};

ProcessId this_process();
/// True while the process runs. A zombie has ended.
bool alive(const ProcessId& process);

/// A descriptor that is readable once the process has ended. Code::not_found if it is gone already, even if its pid
/// now names another one.
Result<Fd> open_process(const ProcessId& process);
/// Signals exactly the process behind a descriptor of open_process or of a child.
bool signal_process(const Fd& pidfd, int signal);

/// Signals the group that the process behind the descriptor leads, if that process still runs: then the group's number
/// is its own.
bool signal_group(const ProcessId& leader, const Fd& pidfd, int signal);

/// The process, the one that started it, and so on up to the first.
std::vector<pid_t> ancestry_of(pid_t pid);
/// A process group in its session: both numbers together are not taken by others while any of its processes lives.
struct Group {
  pid_t group = 0;
  pid_t session = 0;
  bool operator==(const Group&) const = default;
  bool operator<(const Group& other) const {
    return group != other.group ? group < other.group : session < other.session;
  }
};
/// The group that this process leads, whatever became of it; nothing if it is gone.
std::optional<Group> group_of(pid_t leader);
/// Processes that still run in any of these groups.
std::vector<ProcessId> members_of(const std::set<Group>& groups);

}  // namespace pliant::cli
