#include "net/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace pliant::net {

Loop::Loop() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PLIANT_ASSERT(epoll_ && wake_);
  watch(wake_.get(), [this] {
    std::uint64_t count = 0;
    [[maybe_unused]] auto size = ::read(wake_.get(), &count, sizeof(count));
  });
}

void Loop::watch(int fd, Callback ready) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  bool known = watched_.contains(fd);
  watched_[fd] = std::make_shared<Callback>(std::move(ready));
  if (!known) PLIANT_ASSERT(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
}

void Loop::unwatch(int fd) {
  if (watched_.erase(fd)) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
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
    for (int i = 0; i < count; ++i) {
      auto at = watched_.find(events[i].data.fd);
      if (at == watched_.end()) continue;  // unwatched by an earlier callback of this round
      auto call = at->second;
      (*call)();
    }
    run_timers();
  }
}

}  // namespace pliant::net
