#include "collective/death_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "base/log.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

constexpr int kPidfdOpen = 434;  // SYS_pidfd_open
constexpr auto kRetry = 50ms;
constexpr auto kBeat = std::chrono::duration_cast<std::chrono::milliseconds>(net::Pulse::kBeat);

}  // namespace

ProcessWatch::ProcessWatch(net::Loop& loop, Events events) : loop_(loop), events_(std::move(events)) {
  auto post = [this, alive = std::weak_ptr(alive_)](auto action) {
    return [this, alive, action](std::uint64_t id) {
      loop_.post([alive, action, id] {
        if (alive.lock()) action(id);
      });
    };
  };
  auto standstill = [this](std::uint64_t id) {
    if (events_.on_standstill && processes_.contains(id)) events_.on_standstill(id);
  };
  auto line = net::Lifeline::create({post([this](std::uint64_t id) { marked(id); }), post(standstill)});
  if (line.ok())
    lifeline_ = std::move(line).value();
  else
    log::debug("no lifeline, deaths are noticed later: {}", line.error().message);
}

/// By now it may be another process that is watched as this worker. Its number is its own: there is a pidfd of it.
void ProcessWatch::marked(std::uint64_t id) {
  auto at = processes_.find(id);
  if (at == processes_.end() || !at->second.pidfd) return;
  if (has_ended(id) || net::is_exiting(at->second.pid)) events_.on_ended(id);
}

ProcessWatch::~ProcessWatch() {
  lifeline_.reset();  // first: its thread posts
  if (retries_) loop_.cancel(*retries_);
  if (looks_) loop_.cancel(*looks_);
  for (auto& [id, process] : processes_)
    if (process.pidfd) loop_.unwatch(process.pidfd.get());
}

void ProcessWatch::watch(std::uint64_t id, pid_t pid) {
  if (auto at = processes_.find(id); at != processes_.end() && at->second.pid == pid) return;
  forget(id);
  auto& process = processes_[id];
  process.pid = pid;
  open(id, process);
  if (!looks_ && events_.on_standstill) looks_ = loop_.every(kBeat, [this] { look_at_silent(); });
}

/// Tells of them again and again, as a lifeline does of those who have greeted.
void ProcessWatch::look_at_silent() {
  std::vector<std::uint64_t> stopped;
  bool anybody = false;
  for (auto& [id, process] : processes_) {
    if (!process.pulse) continue;
    anybody = true;
    if (process.pidfd && process.pulse->is_stopped(net::task_state(process.pid, process.pid))) stopped.push_back(id);
  }
  if (!anybody) loop_.cancel(*std::exchange(looks_, std::nullopt));
  for (auto id : stopped) events_.on_standstill(id);
}

void ProcessWatch::open(std::uint64_t id, Process& process) {
  process.pidfd = Fd(static_cast<int>(syscall(kPidfdOpen, process.pid, 0)));
  if (process.pidfd) {
    loop_.watch(process.pidfd.get(), [this, id] { events_.on_ended(id); });
  } else if (errno == ESRCH) {
    loop_.post([this, alive = std::weak_ptr(alive_), id, pid = process.pid] {
      if (!alive.lock()) return;
      if (auto at = processes_.find(id); at != processes_.end() && at->second.pid == pid) events_.on_ended(id);
    });
  } else if (!retries_) {
    log::warn("cannot watch worker {}: {}", id, errno_error("pidfd").message);
    retries_ = loop_.every(kRetry, [this] { open_missing(); });
  }
}

void ProcessWatch::open_missing() {
  for (auto& [id, process] : processes_)
    if (!process.pidfd) open(id, process);
  if (std::ranges::any_of(processes_, [](const auto& entry) { return !entry.second.pidfd; })) return;
  loop_.cancel(*retries_);
  retries_.reset();
}

void ProcessWatch::watch_lifeline(std::uint64_t id, const Fd& line) {
  auto at = processes_.find(id);
  if (!lifeline_ || at == processes_.end() || !at->second.pidfd) return;
  auto watched = lifeline_->watch(id, at->second.pid, line);
  if (!watched.ok()) return log::debug("no lifeline of worker {}: {}", id, watched.error().message);
  at->second.pulse.reset();
}

void ProcessWatch::forget(std::uint64_t id) {
  if (lifeline_) lifeline_->unwatch(id);
  auto at = processes_.find(id);
  if (at == processes_.end()) return;
  if (at->second.pidfd) loop_.unwatch(at->second.pidfd.get());
  processes_.erase(at);
}

bool ProcessWatch::has_ended(std::uint64_t id) const {
  auto at = processes_.find(id);
  if (at == processes_.end() || !at->second.pidfd) return false;
  pollfd entry{at->second.pidfd.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

std::optional<int> ProcessWatch::lifeline() const {
  return lifeline_ ? std::optional(lifeline_->descriptor()) : std::nullopt;
}

// Both facts in one number, which is written at once.
void ProcessWatch::note_view(wire::LastView view) {
  if (lifeline_) lifeline_->note(2 * view.epoch + view.unvoted);
}

wire::LastView ProcessWatch::last_view(std::uint64_t id) const {
  auto noted = lifeline_ ? lifeline_->noted_by(id) : 0;
  return {noted / 2, noted % 2 == 1};
}

}  // namespace pliant::collective
