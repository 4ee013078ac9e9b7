// How the mesh's connections come about: made from here to lower ids, awaited from higher ones.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "collective/mesh.h"

namespace pliant::collective {

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
  if (socket.ok() && !send_hello(socket.value()).ok()) return link.connect_later(clock_.now());
  if (!socket.ok()) {
    if (socket.error().code != Code::io) close(link, socket.error().message);
    return link.connect_later(clock_.now());
  }
  link.socket = std::move(socket).value();
  loop_.watch(link.socket.get(), [this, id = link.member.id] { read_peer(id); });
}

void Mesh::serve_retries() {
  auto now = clock_.now();
  for (auto& [id, link] : links_) {
    if (link.due(now)) connect_to(link);
    if (std::exchange(link.full, false) && link.socket) {
      loop_.watch(link.socket.get(), [this, id = id] { read_peer(id); });
      read_peer(id);
    }
    if (!link.outbox.empty()) flush(link);  // what did not fit into the socket's buffer before
  }
  strangers_.serve();
}

// ---- being connected to ----

/// A worker with a higher id greets, or somebody who says that it is one.
Status Mesh::take(net::Peer& peer, const wire::PeerHello& hello, const std::vector<Fd>& fds) {
  if (hello.job != job_ || hello.id <= self_.id)
    return Error{Code::refused, "a greeting for another job, or from the wrong side"};
  auto& link = link_of(hello.id);
  if (!may_connect(link, peer.pid))
    return Error{Code::refused, "a second greeting of one worker, or one of a worker that has ended"};
  if (!send_hello(peer.socket).ok()) return Error{Code::refused, "it closed the connection"};
  link.socket = std::move(peer.socket);
  loop_.watch(link.socket.get(), [this, id = hello.id] { read_peer(id); });
  greeted(link, peer.pid, fds);
  return {};
}

/// Process `pid` says that it is this worker. What there was of an earlier connection has ended then.
bool Mesh::may_connect(Link& link, pid_t pid) {
  bool same = link.may_be(pid);
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
  disconnect(link);
  watch_->forget(link.member.id);
  link.renew();
}

}  // namespace pliant::collective
