#include "collective/mesh.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <future>

#include "base/log.h"

namespace pliant::collective {
namespace {

constexpr std::size_t kMostStrangers = 64;
constexpr int kPidfdOpen = 434;  // SYS_pidfd_open

}  // namespace

Mesh::Mesh(Team team, Fd listener, int control, MeshEvents events)
    : team_(std::move(team)),
      listener_(std::move(listener)),
      control_(control),
      events_(std::move(events)),
      links_(team_.members.size()),
      present_(team_.members.size(), false) {
  thread_ = std::thread([this] {
    if (listener_) loop_.watch(listener_.get(), [this] { accept_all(); });
    for (int rank = 0; rank < team_.rank; ++rank) connect_to(rank);
    loop_.every(std::chrono::milliseconds(5), [this] { serve_timer(); });
    loop_.run();
  });
}

Mesh::~Mesh() {
  loop_.stop();
  thread_.join();
}

Status Mesh::send_hello(const Fd& socket) {
  return net::send(socket, wire::PeerHello{team_.job, team_.view_hash, team_.members[team_.rank].id},
                   std::vector<int>{control_});
}

void Mesh::connect_to(int rank) {
  auto& link = links_[rank];
  auto socket = net::connect_to(team_.members[rank].address);
  if (!socket.ok()) {
    link.retry = socket.error().code == Code::io;
    if (!link.retry) lose(rank, socket.error().message);
    return;
  }
  link.retry = !send_hello(socket.value()).ok();
  if (link.retry) return;
  link.socket = std::move(socket).value();
  loop_.watch(link.socket.get(), [this, rank] { read_peer(rank); });
}

void Mesh::serve_timer() {
  for (int rank = 0; rank < team_.size(); ++rank) {
    auto& link = links_[rank];
    if (link.retry) connect_to(rank);
    if (!link.outbox.empty()) flush(rank);  // what did not fit into the socket's buffer before
  }
}

void Mesh::accept_all() {
  for (;;) {
    auto peer = net::accept_from(listener_);
    if (!peer.ok()) return refuse(peer.error().message);
    if (!peer.value()) return;
    if (strangers_.size() >= kMostStrangers) {  // the oldest has had its time: members greet at once
      loop_.unwatch(strangers_.begin()->second.socket.get());
      strangers_.erase(strangers_.begin());
      refuse("a connection that says nothing");
    }
    auto number = next_stranger_++;
    int fd = peer.value()->socket.get();
    strangers_.emplace(number, std::move(*peer.value()));
    loop_.watch(fd, [this, number] { read_stranger(number); });
  }
}

void Mesh::refuse(const std::string& why) {
  log::debug("refused a connection: {}", why);
  std::lock_guard lock(mutex_);
  ++refused_;
}

void Mesh::read_stranger(std::uint64_t number) {
  auto received = net::receive(strangers_.at(number).socket);
  if (received.ok() && !received.value()) return;
  auto peer = std::move(strangers_.at(number));
  strangers_.erase(number);
  loop_.unwatch(peer.socket.get());
  if (!received.ok()) return refuse(received.error().message);
  auto* hello = std::get_if<wire::PeerHello>(&received.value()->message);
  auto& fds = received.value()->fds;
  if (!hello || fds.size() != 1) return refuse("expected a greeting");
  if (hello->job != team_.job || hello->view_hash != team_.view_hash) return refuse("a greeting for another view");
  for (int rank = team_.rank + 1; rank < team_.size(); ++rank) {
    if (team_.members[rank].id != hello->id || links_[rank].socket) continue;
    if (!send_hello(peer.socket).ok()) return lose(rank, "it closed the connection");
    return adopt(rank, std::move(peer.socket), peer.pid, std::move(fds[0]));
  }
  refuse("a greeting from nobody of this view");
}

void Mesh::adopt(int rank, Fd socket, pid_t pid, Fd control) {
  auto& link = links_[rank];
  if (socket) {
    link.socket = std::move(socket);
    loop_.watch(link.socket.get(), [this, rank] { read_peer(rank); });
  }
  if (auto accepted = events_.on_hello(rank, std::move(control)); !accepted.ok())
    return lose(rank, accepted.error().message);
  link.greeted = true;
  // The connection tells of most deaths; the pidfd is the kernel's proof and also covers descriptors that a child
  // of the peer inherited.
  link.pidfd = Fd(static_cast<int>(syscall(kPidfdOpen, pid, 0)));
  if (link.pidfd && pid != getpid()) loop_.watch(link.pidfd.get(), [this, rank] { lose(rank, "its process ended"); });
  std::lock_guard lock(mutex_);
  present_[rank] = true;
  ++connected_;
  changed_.notify_all();
}

void Mesh::read_peer(int rank) {
  auto& link = links_[rank];
  while (link.socket) {
    auto received = net::receive(link.socket);
    if (!received.ok() && link.greeted) return lose(rank, received.error().message);
    if (!received.ok()) {  // turned away in a crowd, or gone: trying again tells
      loop_.unwatch(link.socket.get());
      link.socket.reset();
      link.retry = true;
      return;
    }
    if (!received.value()) return;
    auto& message = received.value()->message;
    auto& fds = received.value()->fds;
    if (auto* hello = std::get_if<wire::PeerHello>(&message); hello && !link.greeted) {
      if (hello->view_hash != team_.view_hash || hello->id != team_.members[rank].id || fds.size() != 1)
        return lose(rank, "it answered for another view");
      auto pid = net::peer_pid(link.socket);
      adopt(rank, Fd(), pid.ok() ? pid.value() : 0, std::move(fds[0]));
    } else if (auto* notice = std::get_if<wire::RegionNotice>(&message); notice && link.greeted) {
      events_.on_region(rank, *notice, std::move(fds));
    } else if (std::holds_alternative<wire::Bye>(message)) {
      link.orderly = true;
    } else {
      return lose(rank, "it sent something unexpected");
    }
  }
}

void Mesh::lose(int rank, const std::string& how) {
  auto& link = links_[rank];
  if (link.lost) return;
  link.lost = true;
  link.outbox.clear();
  if (link.socket) loop_.unwatch(link.socket.get());
  if (link.pidfd) loop_.unwatch(link.pidfd.get());
  link.socket.reset();
  link.pidfd.reset();
  {
    std::lock_guard lock(mutex_);
    if (!present_[rank]) failure_ = fmt::format("cannot reach rank {}: {}", rank, how);
    changed_.notify_all();
  }
  events_.on_lost(rank, link.orderly, how);
}

Status Mesh::wait_formed(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  auto all = static_cast<int>(team_.members.size()) - 1;
  changed_.wait_for(lock, limit, [&] { return connected_ == all || !failure_.empty(); });
  if (!failure_.empty()) return Error{Code::peer_lost, failure_};
  if (connected_ == all) return {};
  std::string missing;
  for (int rank = 0; rank < team_.size(); ++rank)
    if (rank != team_.rank && !present_[rank]) missing += fmt::format(" {}", rank);
  return Error{Code::io, fmt::format("no connection within {} ms with ranks{}", limit.count(), missing)};
}

void Mesh::send_to_all(wire::Message message, const std::vector<int>& fds) {
  auto parcel = std::make_shared<Parcel>();
  parcel->message = std::move(message);
  for (int fd : fds) parcel->fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  loop_.post([this, parcel] {
    for (int rank = 0; rank < team_.size(); ++rank) {
      if (!links_[rank].socket) continue;
      links_[rank].outbox.push_back(parcel);
      flush(rank);
    }
  });
}

void Mesh::flush(int rank) {
  auto& link = links_[rank];
  while (!link.outbox.empty()) {
    auto parcel = link.outbox.front();
    std::vector<int> fds;
    for (const auto& fd : parcel->fds) fds.push_back(fd.get());
    auto sent = net::try_send(link.socket, parcel->message, fds);
    if (!sent.ok()) return lose(rank, sent.error().message);
    if (!sent.value()) return;
    link.outbox.pop_front();
  }
}

void Mesh::say_goodbye() {
  std::promise<void> done;
  send_to_all(wire::Bye{}, {});
  loop_.post([&] { done.set_value(); });
  done.get_future().wait();
}

std::uint64_t Mesh::refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

}  // namespace pliant::collective
