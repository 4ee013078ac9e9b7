#include "apps/pliant/coordinator_server.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <chrono>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLongestOutbox = 4096;
constexpr int kAtOnce = 64;  // connections or packets per turn, so that nobody starves the others
constexpr std::size_t kLongestAddress = sizeof(sockaddr_un{}.sun_path) - 1;

}  // namespace

CoordinatorServer::CoordinatorServer(net::Loop& loop, Fd listener, const membership::CoordinatorOptions& options,
                                     const std::optional<membership::Memory>& memory, ServerEvents events,
                                     agent::Chronicle& chronicle)
    : loop_(loop),
      listener_(std::move(listener)),
      events_(std::move(events)),
      timer_(loop.every(500ms, [this] { sweep(); })),
      pulse_(loop.every(200ms, [this] { reception_.pulse(); })),
      processes_(loop, [this](std::uint64_t id) { reception_.on_gone(id); }),
      reception_(clock_, options, memory, *this, chronicle) {
  loop_.watch(listener_.get(), [this] { accept_all(); });
  reception_.begin();
}

CoordinatorServer::~CoordinatorServer() {
  loop_.cancel(timer_);
  loop_.cancel(pulse_);
  if (flusher_) loop_.cancel(*flusher_);
  loop_.unwatch(listener_.get());
  for (const auto& [link, connection] : connections_) loop_.unwatch(connection.line.fd());
}

// ---- connections ----

void CoordinatorServer::accept_all() {
  for (int i = 0; i < kAtOnce; ++i) {
    auto peer = net::accept_from(listener_);
    if (!peer.ok()) {
      reception_.count_refused();
      log::debug("coordinator: {}", peer.error().message);
      if (peer.error().code == Code::refused) continue;
      // Out of descriptors, most likely. The listener stays readable: look away until the next sweep.
      loop_.unwatch(listener_.get());
      listening_ = false;
      return;
    }
    if (!peer.value()) return;
    auto pid = peer.value()->pid;
    add(net::Line::local(std::move(peer.value()->socket)), {pid});
  }
}

void CoordinatorServer::add(net::Line line, agent::Caller caller) {
  auto link = next_link_++;
  reception_.on_call(link, caller);
  auto& added = connections_[link];
  added.line = std::move(line);
  loop_.watch(added.line.fd(), [this, link] { read_from(link); });
  read_from(link);  // something may have come with the handshake
}

void CoordinatorServer::open_to_others(Fd listener, const net::Secret& secret) {
  net::GateOptions options;
  options.objection = [](const net::Introduction& who) {
    bool ours =
        who.purpose == net::Purpose::coordinator && who.to == UINT64_MAX && who.protection == net::Protection::sealed;
    return ours ? "" : "a call for somebody else";
  };
  gate_ = std::make_unique<net::Gate>(
      loop_, std::move(listener), secret, coordinator().job(), [this](net::Guest guest) { admit(std::move(guest)); },
      std::move(options));
}

void CoordinatorServer::admit(net::Guest guest) {
  add(net::Line::remote(std::move(guest.socket), std::move(guest.rest), std::move(guest.keys)), {0, guest.who.from});
}

void CoordinatorServer::sweep() {
  reception_.on_time();
  if (listening_) return;
  listening_ = true;
  loop_.watch(listener_.get(), [this] { accept_all(); });
}

void CoordinatorServer::read_from(Link link) {
  for (int i = 0; i < kAtOnce; ++i) {
    auto at = connections_.find(link);
    if (at == connections_.end()) return;
    auto received = at->second.line.receive();
    if (!received.ok()) {
      if (received.error().code == Code::protocol) reception_.on_garbage(link, received.error().message);
      return close(link);
    }
    if (!received.value()) return;
    reception_.on_message(link, received.value()->message);
  }
}

void CoordinatorServer::close(Link link) {
  hang_up(link);
  reception_.on_closed(link);
}

// ---- sending ----

void CoordinatorServer::send(Link link, const wire::Message& message) {
  auto at = connections_.find(link);
  if (at == connections_.end()) return;
  auto& connection = at->second;
  connection.outbox.push(message);
  if (connection.outbox.size() > kLongestOutbox) return close(link);
  if (!connection.outbox.flush(connection.line)) return part_from(link);
  if (connection.waits() && !flusher_) flusher_ = loop_.every(10ms, [this] { flush_all(); });
}

void CoordinatorServer::hang_up(Link link) {
  auto at = connections_.find(link);
  if (at == connections_.end()) return;
  loop_.unwatch(at->second.line.fd());
  connections_.erase(at);
}

/// It reads no more. What it has said before is heard, and then its end.
void CoordinatorServer::part_from(Link link) {
  connections_.at(link).outbox.clear();
  loop_.post([this, link] {
    if (connections_.contains(link)) read_from(link);
  });
}

void CoordinatorServer::flush_all() {
  std::vector<Link> broken;
  bool done = true;
  for (auto& [link, connection] : connections_) {
    if (!connection.outbox.flush(connection.line)) broken.push_back(link);
    done = done && !connection.waits();
  }
  for (auto link : broken) part_from(link);
  if (!done) return;
  loop_.cancel(*flusher_);
  flusher_.reset();
}

std::string coordinator_address(const std::string& dir) {
  auto path = dir + "/coordinator.sock";
  return path.size() <= kLongestAddress ? path : fmt::format("@pliant/{:016x}", random_u64());
}

}  // namespace pliant::cli
