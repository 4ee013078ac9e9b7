#include "apps/pliant/worker_processes.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "apps/pliant/process.h"

namespace pliant::cli {

WorkerProcesses::~WorkerProcesses() {
  for (const auto& [id, watch] : watched_) loop_.unwatch(watch.pidfd.get());
}

void WorkerProcesses::know(std::uint64_t id, pid_t pid) {
  processes_.try_emplace(id, pid);
  if (!watched_.contains(id)) watch(id, pid);
}

void WorkerProcesses::started(std::uint64_t id, pid_t pid) {
  // A dead one's number may come again; and nobody descends from a process that is gone.
  std::erase_if(processes_, [&](const auto& entry) {
    return entry.second == pid || (!watched_.contains(entry.first) && is_unused(entry.second));
  });
  processes_[id] = pid;
  if (!watched_.contains(id)) watch(id, pid);
}

void WorkerProcesses::watch(std::uint64_t id, pid_t pid) {
  auto& watch = watched_[id];
  if (watch.pidfd && watch.pid == pid) return;
  if (watch.pidfd) loop_.unwatch(watch.pidfd.get());
  watch = {pid, Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)))};
  if (watch.pidfd)
    loop_.watch(watch.pidfd.get(), [this, id] { gone(id); });
  else
    loop_.post([this, id] { gone(id); });
}

void WorkerProcesses::gone(std::uint64_t id) {
  auto at = watched_.find(id);
  if (at == watched_.end()) return;
  if (at->second.pidfd) loop_.unwatch(at->second.pidfd.get());
  watched_.erase(at);
  on_gone_(id);
}

std::optional<std::uint64_t> WorkerProcesses::owner_of(pid_t pid) const {
  if (pid == 0) return std::nullopt;
  for (auto ancestor : ancestry_of(pid))
    for (const auto& [id, process] : processes_)
      if (process == ancestor) return id;
  return std::nullopt;
}

}  // namespace pliant::cli
