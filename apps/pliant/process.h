// Processes by a name that is never reused: a pid together with its start time.
//
// All signals of `pliant` are sent here: through a pidfd of the process that is meant, and never to process 1, to this
// process's own group (pid 0) or to everybody (pid -1), whatever a file says.
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
/// now names another one; also for pids that no job has (1 and below).
Result<Fd> open_process(const ProcessId& process);
/// Signals exactly the process behind a descriptor of open_process or of a child.
bool signal_process(const Fd& pidfd, int signal);

/// Signals the group that the process behind the descriptor leads, if that process still runs: then the group's number
/// is its own.
bool signal_group(const ProcessId& leader, const Fd& pidfd, int signal);
/// The same for a child that leads a group: also if it has ended, as long as it was not reaped.
bool signal_child_group(pid_t child, const Fd& pidfd, int signal);
/// Kills a child, with its group if it leads one, for callers that have no pidfd of it. REQUIRES: it was not reaped.
void kill_child(pid_t child);

/// From now on the kernel writes no core dump of this process, which holds the job's secret and the variables of its
/// workers. What such a process starts is not concerned: a program's beginning undoes it. Most files about it in /proc
/// belong to root then, but its user can still read `stat`, `status`, `cmdline` and `cgroup`, which is all that
/// commands, agents and coordinators read of each other; signals, pidfds and SO_PEERCRED do not ask. Where /proc hides
/// processes (hidepid) nothing is done: the user's own commands would not see this one either, and take it for dead.
void leave_no_core_dumps();
/// /proc is mounted with hidepid, so that processes which cannot be traced are hidden.
bool proc_hides_processes();

/// No process has this number now.
bool is_unused(pid_t pid);
/// The user that a process runs as; nothing if it is gone. The owner of files in /proc would not tell: that is root for
/// a process that leaves no core dumps.
std::optional<uid_t> user_of(pid_t pid);

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
/// No process is in the group now; zombies count as being in it.
bool is_empty(const Group& group);
/// Processes that still run in any of these groups.
std::vector<ProcessId> members_of(const std::set<Group>& groups);

}  // namespace pliant::cli
