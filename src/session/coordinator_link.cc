#include "session/coordinator_link.h"

#include <chrono>

#include "net/socket.h"

namespace pliant::session {
namespace {

using namespace std::chrono_literals;
constexpr auto kTick = 100ms;  // between reports, and between attempts to connect

}  // namespace

CoordinatorLink::CoordinatorLink(net::Loop& loop, std::string address, LinkEvents events)
    : loop_(loop), address_(std::move(address)), events_(std::move(events)), silent_since_(clock_.now()) {
  timer_ = loop_.every(kTick, [this] { tick(); });
  connect();
}

CoordinatorLink::~CoordinatorLink() {
  loop_.cancel(timer_);
  if (socket_) loop_.unwatch(socket_.get());
}

void CoordinatorLink::tick() {
  if (!socket_) connect();
  if (!socket_) return events_.on_silence(clock_.now() - silent_since_, why_);
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

void CoordinatorLink::connect() {
  auto socket = net::connect_to(address_);
  if (!socket.ok()) {
    why_ = socket.error().message;
    return;
  }
  socket_ = std::move(socket).value();
  loop_.watch(socket_.get(), [this] { read(); });
  send(events_.introduce());
}

void CoordinatorLink::read() {
  while (socket_) {
    auto received = net::receive(socket_);
    if (!received.ok()) return close(received.error().message);
    if (!received.value()) return;
    events_.on_message(received.value()->message);
  }
}

void CoordinatorLink::close(const std::string& why) {
  loop_.unwatch(socket_.get());
  socket_.reset();
  silent_since_ = clock_.now();
  why_ = why;
}

void CoordinatorLink::send(const wire::Message& message) {
  if (!socket_) return;
  if (auto sent = net::try_send(socket_, message); !sent.ok()) close(sent.error().message);
}

void CoordinatorLink::report(wire::Progress progress) {
  std::lock_guard lock(mutex_);
  progress_ = std::move(progress);
}

}  // namespace pliant::session
