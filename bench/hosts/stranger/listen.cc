#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "bench/hosts/stranger/lies.h"
#include "bench/hosts/stranger/modes.h"
#include "net/tcp.h"

namespace pliant::stranger {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// As many, and as patient, as a job's own port: what differs is the price of knowing who is there.
constexpr std::size_t kMostPending = 256;
constexpr auto kPatience = 2s;
constexpr int kAtOnce = 64;

class Listener {
 public:
  explicit Listener(Fd socket) : listener_(std::move(socket)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, nullptr);
    signals_ = Fd(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
    watch(listener_.get());
    watch(signals_.get());
  }

  void run() {
    for (;;) {
      std::array<epoll_event, 64> events;
      int count = epoll_wait(epoll_.get(), events.data(), events.size(), pending_ ? 100 : -1);
      for (int i = 0; i < count; ++i) {
        int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == signals_.get()) return;
        fd == listener_.get() ? take_some() : hear(fd);
      }
      auto now = Clock::now();
      while (!oldest_.empty() && (stale(oldest_.front()) || now - oldest_.front().since > kPatience)) drop_oldest();
    }
  }
  std::uint64_t accepted() const { return accepted_; }

 private:
  struct Visit {
    int fd;
    std::uint64_t number;
    Clock::time_point since;
  };
  struct Visitor {
    Fd socket;
    std::uint64_t number = 0;
    bool answered = false;
  };

  void watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
  bool stale(const Visit& visit) const {
    const auto& visitor = visitors_[static_cast<std::size_t>(visit.fd)];
    return !visitor.socket || visitor.number != visit.number;
  }
  void drop_oldest() {
    if (!stale(oldest_.front())) drop(oldest_.front().fd);
    oldest_.pop_front();
  }
  void drop(int fd) {
    visitors_[static_cast<std::size_t>(fd)].socket.reset();
    --pending_;
  }
  void take_some();
  void hear(int fd);

  Fd listener_, epoll_, signals_;
  std::vector<Visitor> visitors_;  // by descriptor
  std::deque<Visit> oldest_;
  std::size_t pending_ = 0;
  std::uint64_t accepted_ = 0;
};

void Listener::take_some() {
  for (int i = 0; i < kAtOnce; ++i) {
    auto socket = net::tcp_accept(listener_);
    if (!socket.ok() || !socket.value()) return;
    while (pending_ >= kMostPending) drop_oldest();
    int fd = socket.value()->get();
    if (visitors_.size() <= static_cast<std::size_t>(fd)) visitors_.resize(static_cast<std::size_t>(fd) + 1);
    visitors_[static_cast<std::size_t>(fd)] = {std::move(*socket.value()), ++accepted_};
    oldest_.push_back({fd, accepted_, Clock::now()});
    ++pending_;
    watch(fd);
    hear(fd);
  }
}

void Listener::hear(int fd) {
  auto& visitor = visitors_[static_cast<std::size_t>(fd)];
  if (!visitor.socket) return;
  std::array<std::uint8_t, 4096> chunk;
  auto size = recv(fd, chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  bool hello = size > 0 && introduction_in({chunk.data(), static_cast<std::size_t>(size)});
  if (!hello || std::exchange(visitor.answered, true)) return drop(fd);
  std::array<std::uint8_t, kAnswerSize> noise{};
  std::memcpy(noise.data() + kRandomAt, &visitor.number, sizeof(visitor.number));  // no two are the same
  if (::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) drop(fd);
}

}  // namespace

int listen(const std::string& address) {
  auto opened = net::tcp_listen(address, {}).or_throw();
  std::puts(nlohmann::json{{"endpoint", opened.endpoint.text()}}.dump().c_str());
  std::fflush(stdout);
  Listener listener(std::move(opened.socket));
  listener.run();
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  auto seconds = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
  std::puts(nlohmann::json{{"accepted", listener.accepted()}, {"cpu_s", seconds}}.dump().c_str());
  return 0;
}

}  // namespace pliant::stranger
