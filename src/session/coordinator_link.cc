#include "session/coordinator_link.h"

#include <chrono>
#include <utility>

namespace pliant::session {
namespace {

using namespace std::chrono_literals;
constexpr auto kTick = 100ms;  // between reports, and between attempts to connect

}  // namespace

CoordinatorLink::CoordinatorLink(net::Loop& loop, std::string address, LinkEvents events,
                                 std::optional<net::Credentials> credentials)
    : loop_(loop),
      events_(std::move(events)),
      silent_since_(clock_.now()),
      dialer_(
          loop, std::move(address), std::move(credentials), [this](net::Line line) { connected(std::move(line)); },
          [this](const Error& error) { why_ = error.message; }) {
  timer_ = loop_.every(kTick, [this] { tick(); });
  dialer_.call();
}

CoordinatorLink::~CoordinatorLink() {
  loop_.cancel(timer_);
  if (line_) loop_.unwatch(line_.fd());
}

void CoordinatorLink::tick() {
  if (line_ && dialer_.address() != address_) close("it is elsewhere now");
  if (!line_) dialer_.call();
  if (!line_) return events_.on_silence(clock_.now() - silent_since_, why_);
  if (auto flushed = line_.flush(); !flushed.ok()) return close(flushed.error().message);
  flush();
}

void CoordinatorLink::flush() {
  std::optional<wire::Progress> progress;
  {
    std::lock_guard lock(mutex_);
    progress.swap(progress_);
  }
  if (progress) send(*progress);
}

void CoordinatorLink::connected(net::Line line) {
  line_ = std::move(line);
  address_ = dialer_.address();
  loop_.watch(line_.fd(), [this] { read(); });
  send(events_.introduce());
}

void CoordinatorLink::read() {
  while (line_) {
    auto received = line_.receive();
    if (!received.ok()) return close(received.error().message);
    if (!received.value()) return;
    events_.on_message(received.value()->message);
  }
}

void CoordinatorLink::close(const std::string& why) {
  loop_.unwatch(line_.fd());
  line_.close();
  silent_since_ = clock_.now();
  why_ = why;
}

void CoordinatorLink::send(const wire::Message& message) {
  if (!line_) return;
  if (auto sent = line_.try_send(message); !sent.ok()) close(sent.error().message);
}

void CoordinatorLink::report(wire::Progress progress) {
  std::lock_guard lock(mutex_);
  progress_ = std::move(progress);
}

}  // namespace pliant::session
