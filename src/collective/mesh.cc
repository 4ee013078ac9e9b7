#include "collective/mesh.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>

#include "base/log.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostStrangers = 64;
constexpr std::size_t kMostParked = 8192;
constexpr int kPidfdOpen = 434;  // SYS_pidfd_open

bool has_ended(const Fd& pidfd) {
  pollfd entry{pidfd.get(), POLLIN, 0};
  return pidfd && poll(&entry, 1, 0) > 0;
}

/// The view that a message is about, or 0.
std::uint64_t view_of(const wire::Message& message) {
  if (const auto* entered = std::get_if<wire::Entered>(&message)) return entered->view_hash;
  if (const auto* region = std::get_if<wire::RegionNotice>(&message)) return region->view_hash;
  return 0;
}

bool is_letter(const wire::Message& message) {
  return std::holds_alternative<wire::Claim>(message) || std::holds_alternative<wire::Promise>(message) ||
         std::holds_alternative<wire::Decline>(message) || std::holds_alternative<wire::Propose>(message) ||
         std::holds_alternative<wire::Stored>(message) || std::holds_alternative<wire::InForce>(message) ||
         std::holds_alternative<wire::Dead>(message);
}

}  // namespace

Mesh::Mesh(std::string job, wire::Member self, Fd listener, MeshEvents events, std::optional<HostsOptions> hosts)
    : job_(std::move(job)), self_(std::move(self)), listener_(std::move(listener)), events_(std::move(events)) {
  if (hosts) {
    RoadEvents news;
    news.on_connected = [this](std::uint64_t id) { arrived_from_afar(id); };
    news.on_letter = [this](std::uint64_t from, wire::Message message) {
      auto& link = link_of(from);
      if (!take_in(link, std::move(message), {})) close(link, "it sent something unexpected");
    };
    news.on_lost = [this](std::uint64_t id, const std::string& how) { close(link_of(id), how); };
    roads_ = std::make_unique<Roads>(loop_, job_, self_.id, std::move(*hosts), std::move(news));
  }
  auto lifeline = net::Lifeline::create([this](std::uint64_t id) { loop_.post([this, id] { process_ended(id); }); });
  if (lifeline.ok())
    lifeline_ = std::move(lifeline).value();
  else
    log::debug("no lifeline: {}", lifeline.error().message);
  thread_ = std::thread([this] {
    if (listener_) loop_.watch(listener_.get(), [this] { accept_all(); });
    loop_.every(5ms, [this] { serve_retries(); });
    if (events_.on_tick) loop_.every(50ms, events_.on_tick);
    loop_.run();
  });
}

Mesh::~Mesh() { stop(); }

void Mesh::stop() {
  loop_.stop();
  if (thread_.joinable()) thread_.join();
  lifeline_.reset();
  roads_.reset();
}

void Mesh::run(const std::function<void()>& task) {
  std::promise<void> done;
  loop_.post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

Mesh::Link& Mesh::link_of(std::uint64_t id) {
  auto& link = links_[id];
  link.member.id = id;
  return link;
}

// ---- connecting ----

Status Mesh::send_hello(const Fd& socket) {
  std::vector<int> fds;
  if (lifeline_) fds.push_back(lifeline_->descriptor());
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
  if (!link.pidfd) watch_process(link, member.pid);
  if (link.lost || link.socket) return;
  link.connects = member.id < self_.id;
  if (link.connects) connect_to(link);
}

void Mesh::connect_to(Link& link) {
  auto socket = net::connect_to(link.member.address);
  if (!socket.ok()) {
    link.retry = socket.error().code == Code::io;
    if (!link.retry) close(link, socket.error().message);
    return;
  }
  link.retry = !send_hello(socket.value()).ok();
  if (link.retry) return;
  link.socket = std::move(socket).value();
  loop_.watch(link.socket.get(), [this, id = link.member.id] { read_peer(id); });
}

void Mesh::serve_retries() {
  for (auto& [id, link] : links_) {
    if (link.retry && !link.lost) connect_to(link);
    if (!link.outbox.empty()) flush(link);  // what did not fit into the socket's buffer before
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
  if (!hello) return refuse("expected a greeting");
  if (hello->job != job_ || hello->id <= self_.id) return refuse("a greeting for another job, or from the wrong side");
  auto& link = link_of(hello->id);
  if (link.socket || link.lost) return refuse("a second greeting of one worker");
  if (!send_hello(peer.socket).ok()) return refuse("it closed the connection");
  link.socket = std::move(peer.socket);
  loop_.watch(link.socket.get(), [this, id = hello->id] { read_peer(id); });
  greeted(link, peer.pid);
  watch_lifeline(link, received.value()->fds);
}

/// Lanes to a worker on another host stand, perhaps again.
void Mesh::arrived_from_afar(std::uint64_t id) {
  auto& link = link_of(id);
  link.remote = link.greeted = true;
  link.lost = false;
  found(link);
  flush(link);
}

void Mesh::found(Link& link) {
  {
    std::lock_guard lock(mutex_);
    reached_.insert(link.member.id);
  }
  if (events_.on_found) events_.on_found(link.member.id);
}

bool Mesh::reaches(const std::vector<wire::Member>& members) const {
  std::lock_guard lock(mutex_);
  return std::ranges::all_of(members, [&](const auto& m) { return m.id == self_.id || reached_.contains(m.id); });
}

void Mesh::greeted(Link& link, pid_t pid) {
  link.greeted = true;
  watch_process(link, pid);
  found(link);
  flush(link);
}

/// The connection tells of most deaths; the pidfd is the kernel's proof and also covers descriptors that a child of
/// the peer inherited. The process at the other end of the connection is who counts.
void Mesh::watch_process(Link& link, pid_t pid) {
  if (link.pid == pid) return;
  if (link.pidfd) loop_.unwatch(link.pidfd.get());
  link.pid = pid;
  link.pidfd = Fd(static_cast<int>(syscall(kPidfdOpen, pid, 0)));
  if (pid == getpid()) return;
  auto id = link.member.id;
  if (link.pidfd)
    loop_.watch(link.pidfd.get(), [this, id] { process_ended(id); });
  else if (errno == ESRCH)
    loop_.post([this, id] { process_ended(id); });
}

/// Its word comes long before the pidfd's, because the kernel takes a process's memory apart first.
void Mesh::watch_lifeline(Link& link, const std::vector<Fd>& fds) {
  if (!lifeline_ || !link.pidfd || fds.size() != 1 || link.pid == getpid()) return;
  auto watched = lifeline_->watch(link.member.id, link.pid, fds[0]);
  if (!watched.ok()) log::debug("no lifeline of worker {}: {}", link.member.id, watched.error().message);
}

// ---- receiving ----

void Mesh::read_peer(std::uint64_t id) {
  auto& link = link_of(id);
  while (link.socket) {
    auto received = net::receive(link.socket);
    if (!received.ok() && (link.greeted || !link.connects)) return close(link, received.error().message);
    if (!received.ok()) {  // turned away in a crowd, or gone: trying again tells
      loop_.unwatch(link.socket.get());
      link.socket.reset();
      link.retry = true;
      return;
    }
    if (!received.value()) return;
    auto& message = received.value()->message;
    if (auto* hello = std::get_if<wire::PeerHello>(&message); hello && !link.greeted) {
      if (hello->job != job_ || hello->id != id) return close(link, "it answered for somebody else");
      auto pid = net::peer_pid(link.socket);
      greeted(link, pid.ok() ? pid.value() : 0);
      watch_lifeline(link, received.value()->fds);
    } else if (!link.greeted || !take_in(link, std::move(message), std::move(received.value()->fds))) {
      return close(link, "it sent something unexpected");
    }
  }
}

/// False if it is nothing that peers say to each other.
bool Mesh::take_in(Link& link, wire::Message message, std::vector<Fd> fds) {
  auto id = link.member.id;
  if (std::holds_alternative<wire::Bye>(message))
    link.orderly = true;
  else if (view_of(message) || is_letter(message))
    dispatch(id, {id, std::move(message), std::move(fds)});
  else
    return false;
  return true;
}

void Mesh::dispatch(std::uint64_t from, Letter letter) {
  auto hash = view_of(letter.message);
  bool entered = std::holds_alternative<wire::Entered>(letter.message);
  if (events_.on_letter && (entered || hash == 0)) events_.on_letter(from, letter.message);
  if (hash == 0) return;
  if (auto view = views_.find(hash); view != views_.end())
    return view->second->on_message(from, letter.message, std::move(letter.fds));
  if (parked_.size() >= kMostParked) parked_.pop_front();  // of a view that never came to be
  parked_.push_back(std::move(letter));
}

void Mesh::subscribe(std::uint64_t view_hash, ViewEvents* events) {
  run([&] {
    if (roads_) roads_->in_view(view_hash);
    views_[view_hash] = events;
    auto others = std::stable_partition(parked_.begin(), parked_.end(),
                                        [&](const auto& letter) { return view_of(letter.message) == view_hash; });
    for (auto letter = parked_.begin(); letter != others; ++letter)
      events->on_message(letter->from, letter->message, std::move(letter->fds));
    parked_.erase(parked_.begin(), others);
    for (const auto& [id, link] : links_)
      if (link.lost) events->on_lost({id, link.orderly, link.proven, link.how});
  });
}

void Mesh::unsubscribe(std::uint64_t view_hash) {
  run([&] { views_.erase(view_hash); });
}

// ---- losing ----

void Mesh::process_ended(std::uint64_t id) {
  auto& link = link_of(id);
  loop_.unwatch(link.pidfd.get());
  if (link.proven) return;
  link.proven = true;
  // What it still had to say is in the socket, and comes first.
  if (link.socket) read_peer(id);
  if (link.lost)
    tell(link);  // again: now with proof
  else
    close(link, "its process ended");
}

void Mesh::believe_dead(std::uint64_t id) {
  loop_.post([this, id] {
    auto& link = link_of(id);
    if (!link.remote || link.proven) return;
    link.proven = true;
    if (roads_) roads_->forget(id);
    if (link.lost)
      tell(link);
    else
      close(link, "its host says that its process ended");
  });
}

void Mesh::close(Link& link, const std::string& how) {
  if (link.lost) return;
  link.lost = true;
  link.how = how;
  {
    std::lock_guard lock(mutex_);
    reached_.erase(link.member.id);
  }
  link.proven = link.proven || link.orderly || (!link.remote && link.pid == getpid()) || has_ended(link.pidfd);
  link.greeted = link.greeted && !link.remote;
  link.outbox.clear();
  if (lifeline_) lifeline_->unwatch(link.member.id);
  if (link.socket) loop_.unwatch(link.socket.get());
  link.socket.reset();
  tell(link);
}

void Mesh::tell(const Link& link) {
  PeerLoss loss{link.member.id, link.orderly, link.proven, link.how};
  for (auto& [hash, view] : views_) view->on_lost(loss);
  if (events_.on_lost) events_.on_lost(loss);
}

// ---- sending ----

void Mesh::send(std::vector<std::uint64_t> ids, wire::Message message, const std::vector<int>& fds) {
  auto parcel = std::make_shared<Parcel>();
  parcel->message = std::move(message);
  for (int fd : fds) parcel->fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  loop_.post([this, parcel, ids = std::move(ids)] {
    for (auto id : ids) {
      auto& link = link_of(id);
      if (id == self_.id || link.lost) continue;
      link.outbox.push_back(parcel);
      flush(link);
    }
  });
}

void Mesh::flush(Link& link) {
  if (link.remote) {
    for (; link.greeted && !link.outbox.empty(); link.outbox.pop_front())
      roads_->send(link.member.id, link.outbox.front()->message);
    return;
  }
  while (link.greeted && link.socket && !link.outbox.empty()) {
    auto parcel = link.outbox.front();
    std::vector<int> fds;
    for (const auto& fd : parcel->fds) fds.push_back(fd.get());
    auto sent = net::try_send(link.socket, parcel->message, fds);
    if (!sent.ok()) return close(link, sent.error().message);
    if (!sent.value()) return;
    link.outbox.pop_front();
  }
}

void Mesh::say_goodbye() {
  run([this] {
    auto parcel = std::make_shared<Parcel>();
    parcel->message = wire::Bye{};
    for (auto& [id, link] : links_) {
      if ((!link.socket && !link.remote) || link.lost) continue;
      link.outbox.push_back(parcel);
      flush(link);
    }
  });
}

std::uint64_t Mesh::refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

}  // namespace pliant::collective
