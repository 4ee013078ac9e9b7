#include "net/pulse.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/fd.h"

namespace pliant::net {
namespace {

std::optional<std::string> text_of(const std::string& path) {
  Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024];
  auto size = file ? read(file.get(), text, sizeof(text)) : -1;
  if (size <= 0) return std::nullopt;
  return std::string(text, static_cast<std::size_t>(size));
}

}  // namespace

std::optional<TaskState> task_state(pid_t pid, pid_t thread) {
  auto base = fmt::format("/proc/{}/task/{}/", pid, thread);
  auto stat = text_of(base + "stat");
  auto schedule = text_of(base + "schedstat");  // time on a core, time waiting for one, how often it got one
  if (!stat || !schedule) return std::nullopt;
  auto name_end = stat->rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat->size()) return std::nullopt;
  return TaskState{(*stat)[name_end + 2], std::strtoull(schedule->c_str() + schedule->rfind(' '), nullptr, 10)};
}

bool Pulse::stands_still(std::uint64_t beats, const std::function<std::optional<TaskState>()>& ask) {
  if (beats != seen_) {
    seen_ = beats;
    looks_ = 0;
    runs_.reset();
    return false;
  }
  if (++looks_ < kLooksIfStopped) return false;
  auto task = ask();
  if (!task || task->state == 'R') {
    looks_ = kLooksIfStopped;  // starved: what it does then is looked at anew
    runs_.reset();
    return false;
  }
  if (task->state == 'T' || task->state == 't') return true;
  bool has_run = runs_ && *runs_ != task->runs;
  if (has_run) looks_ = kLooksIfStopped;
  runs_ = task->runs;
  return looks_ >= kLooksIfAsleep;
}

bool Pulse::is_stopped(const std::optional<TaskState>& task) {
  const bool stopped = task && (task->state == 'T' || task->state == 't');
  const bool as_before = stopped && runs_ == task->runs;
  looks_ = as_before ? looks_ + 1 : stopped ? 1 : 0;
  runs_ = stopped ? std::optional(task->runs) : std::nullopt;
  return looks_ >= kLooksIfStopped;
}

}  // namespace pliant::net
