#include "net/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace pliant::net {
namespace {

std::uint64_t key_of(int fd, std::uint32_t number) {
  return (static_cast<std::uint64_t>(number) << 32) | static_cast<std::uint32_t>(fd);
}

}  // namespace

Loop::Loop() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PLIANT_ASSERT(epoll_ && wake_);
  watch(wake_.get(), [this] {
    std::uint64_t count = 0;
    [[maybe_unused]] auto size = ::read(wake_.get(), &count, sizeof(count));
  });
}

void Loop::watch(int fd, Callback readable, Callback writable) {
  auto operation = watched_.contains(fd) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  auto& watched = watched_[fd];
  watched.number = next_watch_++;
  watched.wants_writable = false;
  watched.readable = std::make_shared<Callback>(std::move(readable));
  watched.writable = std::make_shared<Callback>(std::move(writable));
  tell_epoll(operation, fd, watched);
}

void Loop::want_writable(int fd, bool wanted) {
  auto at = watched_.find(fd);
  PLIANT_ASSERT(at != watched_.end());
  PLIANT_ASSERT(!wanted || *at->second.writable);
  if (at->second.wants_writable == wanted) return;
  at->second.wants_writable = wanted;
  tell_epoll(EPOLL_CTL_MOD, fd, at->second);
}

void Loop::unwatch(int fd) {
  if (watched_.erase(fd)) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Loop::tell_epoll(int operation, int fd, const Watched& watched) {
  epoll_event event{};
  event.events = EPOLLIN | (watched.wants_writable ? EPOLLOUT : 0U);
  event.data.u64 = key_of(fd, watched.number);
  PLIANT_ASSERT(epoll_ctl(epoll_.get(), operation, fd, &event) == 0);
}

/// Nothing if an earlier callback of this round has unwatched it, even if its number belongs to another one by now.
Loop::Watched* Loop::find(std::uint64_t key) {
  auto fd = static_cast<int>(key & UINT32_MAX);
  auto at = watched_.find(fd);
  if (at == watched_.end() || key_of(fd, at->second.number) != key) return nullptr;
  return &at->second;
}

/// An error or a hang-up is told to whoever listens.
void Loop::dispatch(std::uint64_t key, std::uint32_t events) {
  auto* watched = find(key);
  if (watched && (events & ~EPOLLOUT)) {
    auto call = watched->readable;
    (*call)();
    watched = find(key);  // it may have changed its mind
  }
  if (watched && watched->wants_writable && (events & ~EPOLLIN)) {
    auto call = watched->writable;
    (*call)();
  }
}

Loop::Timer Loop::every(std::chrono::milliseconds period, Callback due) {
  auto timer = next_timer_++;
  timers_[timer] = Due{clock_.now() + period, period, std::make_shared<Callback>(std::move(due))};
  return timer;
}

void Loop::cancel(Timer timer) { timers_.erase(timer); }

void Loop::post(Callback task) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
  }
  std::uint64_t one = 1;
  [[maybe_unused]] auto size = ::write(wake_.get(), &one, sizeof(one));
}

void Loop::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  std::uint64_t one = 1;
  [[maybe_unused]] auto size = ::write(wake_.get(), &one, sizeof(one));
}

int Loop::until_next_timer() const {
  if (timers_.empty()) return -1;
  auto next = std::min_element(timers_.begin(), timers_.end(),
                               [](const auto& a, const auto& b) { return a.second.at < b.second.at; });
  auto left = std::chrono::ceil<std::chrono::milliseconds>(next->second.at - clock_.now()).count();
  return static_cast<int>(std::max<std::int64_t>(left, 0));
}

void Loop::run_timers() {
  auto now = clock_.now();
  std::vector<Timer> due;
  for (const auto& [timer, entry] : timers_)
    if (entry.at <= now) due.push_back(timer);
  for (auto timer : due) {
    auto at = timers_.find(timer);
    if (at == timers_.end()) continue;  // cancelled by an earlier one
    at->second.at = now + at->second.period;
    auto call = at->second.call;
    (*call)();
  }
}

void Loop::run_posted() {
  std::vector<Callback> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (auto& task : tasks) task();
}

void Loop::run() {
  std::array<epoll_event, 32> events;
  for (;;) {
    run_posted();
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    int count = epoll_wait(epoll_.get(), events.data(), events.size(), until_next_timer());
    for (int i = 0; i < count; ++i) dispatch(events[i].data.u64, events[i].events);
    run_timers();
  }
}

}  // namespace pliant::net
