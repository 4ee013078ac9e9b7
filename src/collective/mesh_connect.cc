// How the mesh's connections come about: made from here to lower ids, awaited from higher ones.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "collective/mesh.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostStrangers = 64;
constexpr Nanos kReconnect = 100ms;  // between attempts to reach a neighbour that was lost

}  // namespace

// ---- connecting ----

Status Mesh::send_hello(const Fd& socket) {
  std::vector<int> fds;
  if (auto line = watch_->lifeline()) fds.push_back(*line);
  return net::send(socket, wire::PeerHello{job_, self_.id}, fds);
}

void Mesh::connect(const std::vector<wire::Member>& members) {
  run([&] { expect(members); });
}

void Mesh::expect(const std::vector<wire::Member>& members) {
  for (const auto& member : members)
    if (member.id != self_.id) add(member);
}

void Mesh::add(const wire::Member& member) {
  auto& link = link_of(member.id);
  if (link.proven && member.pid != (link.pid ? link.pid : link.member.pid)) renew(link);
  if (link.remote && roads_ && !link.proven) return roads_->expect(member);  // it may have been lost and come again
  if (!link.member.address.empty()) return;                                  // known
  link.member = member;
  link.remote = member.host != self_.host;
  if (link.remote) {
    if (roads_)
      roads_->expect(member);
    else
      close(link, "this worker has no way to other hosts");
    return;
  }
  if (link.pid == 0) {
    link.pid = member.pid;
    watch_->watch(member.id, member.pid);
  }
  if (link.lost || link.socket) return;
  link.connects = member.id < self_.id;
  if (link.connects) connect_to(link);
}

void Mesh::connect_to(Link& link) {
  link.retry = false;
  auto socket = net::connect_to(link.member.address);
  if (socket.ok() && !send_hello(socket.value()).ok()) return connect_later(link);
  if (!socket.ok()) {
    if (socket.error().code != Code::io) close(link, socket.error().message);
    return connect_later(link);
  }
  link.socket = std::move(socket).value();
  loop_.watch(link.socket.get(), [this, id = link.member.id] { read_peer(id); });
}

/// As long as its process may live. Who was never connected is awaited by others: it is tried at once.
void Mesh::connect_later(Link& link) {
  if (link.proven || !link.connects) return;
  link.retry = true;
  link.retry_at = link.lost ? clock_.now() + kReconnect : Nanos(0);
}

void Mesh::serve_retries() {
  auto now = clock_.now();
  for (auto& [id, link] : links_) {
    if (link.retry && now >= link.retry_at) connect_to(link);
    if (std::exchange(link.full, false) && link.socket) {
      loop_.watch(link.socket.get(), [this, id = id] { read_peer(id); });
      read_peer(id);
    }
    if (!link.outbox.empty()) flush(link);  // what did not fit into the socket's buffer before
  }
  for (auto& [number, stranger] : strangers_)
    if (std::exchange(stranger.full, false))
      loop_.watch(stranger.peer.socket.get(), [this, number = number] { read_stranger(number); });
  if (!accepting_) watch_listener();
}

// ---- being connected to ----

void Mesh::watch_listener() {
  if (!listener_) return;
  accepting_ = true;
  loop_.watch(listener_.get(), [this] { accept_all(); });
}

void Mesh::accept_all() {
  for (;;) {
    auto peer = net::accept_from(listener_);
    if (!peer.ok() && peer.error().code == Code::io) {  // who waits goes on waiting, without keeping this loop busy
      log::debug("cannot take a connection for a moment: {}", peer.error().message);
      loop_.unwatch(listener_.get());
      accepting_ = false;
      return;
    }
    if (!peer.ok()) return refuse(peer.error().message);
    if (!peer.value()) return;
    if (strangers_.size() >= kMostStrangers) {  // the oldest has had its time: members greet at once
      loop_.unwatch(strangers_.begin()->second.peer.socket.get());
      strangers_.erase(strangers_.begin());
      refuse("a connection that says nothing");
    }
    auto number = next_stranger_++;
    int fd = peer.value()->socket.get();
    strangers_.emplace(number, Stranger{std::move(*peer.value())});
    loop_.watch(fd, [this, number] { read_stranger(number); });
  }
}

void Mesh::refuse(const std::string& why) {
  log::debug("refused a connection: {}", why);
  std::lock_guard lock(mutex_);
  ++refused_;
}

void Mesh::read_stranger(std::uint64_t number) {
  auto& stranger = strangers_.at(number);
  auto received = net::receive(stranger.peer.socket);
  if (received.ok() && !received.value()) return;
  loop_.unwatch(stranger.peer.socket.get());
  if (!received.ok() && received.error().code == Code::io) {
    stranger.full = true;
    return;
  }
  auto peer = std::move(stranger.peer);
  strangers_.erase(number);
  if (!received.ok()) return refuse(received.error().message);
  auto* hello = std::get_if<wire::PeerHello>(&received.value()->message);
  if (!hello) return refuse("expected a greeting");
  if (hello->job != job_ || hello->id <= self_.id) return refuse("a greeting for another job, or from the wrong side");
  auto& link = link_of(hello->id);
  if (!may_connect(link, peer.pid)) return refuse("a second greeting of one worker, or one of a worker that has ended");
  if (!send_hello(peer.socket).ok()) return refuse("it closed the connection");
  link.socket = std::move(peer.socket);
  loop_.watch(link.socket.get(), [this, id = hello->id] { read_peer(id); });
  greeted(link, peer.pid, received.value()->fds);
}

/// Process `pid` says that it is this worker. What there was of an earlier connection has ended then.
bool Mesh::may_connect(Link& link, pid_t pid) {
  bool same = link.pid == 0 || link.pid == pid;
  if (!same && !link.proven && watch_->has_ended(link.member.id)) process_ended(link.member.id);
  if (link.proven && same) return false;
  if (link.proven) {
    renew(link);
  } else if (link.socket) {
    if (!same) return false;
    close(link, "it connected again");
  }
  return true;
}

/// Its process has ended. It may come back as another one, of which nothing is known yet.
void Mesh::renew(Link& link) {
  auto id = link.member.id;
  disconnect(link);
  watch_->forget(id);
  link = Link{};
  link.member.id = id;
}

}  // namespace pliant::collective
