#include "collective/mesh.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

bool is_letter(const wire::Message& message) {
  return std::holds_alternative<wire::Claim>(message) || std::holds_alternative<wire::Promise>(message) ||
         std::holds_alternative<wire::Decline>(message) || std::holds_alternative<wire::Propose>(message) ||
         std::holds_alternative<wire::Stored>(message) || std::holds_alternative<wire::InForce>(message) ||
         std::holds_alternative<wire::Dead>(message);
}

}  // namespace

Mesh::Mesh(std::string job, wire::Member self, Fd listener, MeshEvents events, std::optional<HostsOptions> hosts,
           const WatchMaker& watch)
    : job_(std::move(job)),
      self_(std::move(self)),
      events_(std::move(events)),
      strangers_(loop_, std::move(listener),
                 [this](auto& peer, const auto& hello, const auto& fds) { return take(peer, hello, fds); }) {
  if (hosts) {
    RoadEvents news;
    news.on_connected = [this](std::uint64_t id) { arrived_from_afar(id); };
    news.on_letter = [this](std::uint64_t from, wire::Message message) {
      // Regions are of those who share memory.
      if (std::holds_alternative<wire::RegionNotice>(message) || !take_in(link_of(from), std::move(message), {}))
        roads_->leave_behind(from, "a letter that workers of different hosts do not send each other");
    };
    news.on_lost = [this](std::uint64_t id, const std::string& how) { close(link_of(id), how); };
    roads_ = std::make_unique<Roads>(loop_, job_, self_.id, std::move(*hosts), std::move(news));
  }
  DeathWatch::Events seen{[this](std::uint64_t id) { process_ended(id); },
                          [this](std::uint64_t id) { stands_still(id); }};
  watch_ = watch ? watch(loop_, seen) : std::make_unique<ProcessWatch>(loop_, seen);
  thread_ = std::thread([this] {
    strangers_.serve();
    loop_.every(5ms, [this] { serve_retries(); });
    if (events_.on_tick) loop_.every(50ms, events_.on_tick);
    loop_.run();
  });
}

Mesh::~Mesh() { stop(); }

void Mesh::stop() {
  loop_.stop();
  if (thread_.joinable()) thread_.join();
  watch_.reset();
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

Link& Mesh::link_of(std::uint64_t id) {
  auto& link = links_[id];
  link.member.id = id;
  return link;
}

// ---- being there ----

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

/// The process at the other end of the connection is who counts. The connection tells of most deaths; what watches the
/// process also covers descriptors that a child of it inherited.
void Mesh::greeted(Link& link, pid_t pid, const std::vector<Fd>& lifeline) {
  link.greeted = true;
  link.lost = link.retry = false;
  link.pid = pid;
  watch_->watch(link.member.id, pid);
  if (lifeline.size() == 1) watch_->watch_lifeline(link.member.id, lifeline[0]);
  found(link);
  flush(link);
}

// ---- receiving ----

void Mesh::read_peer(std::uint64_t id) {
  auto& link = link_of(id);
  while (link.socket) {
    auto received = net::receive(link.socket);
    if (!received.ok() && received.error().code == Code::io) return wait_for_descriptors(link);
    if (!received.ok() && (link.greeted || !link.connects)) return close(link, received.error().message);
    if (!received.ok()) {  // turned away in a crowd, or gone: trying again tells
      disconnect(link);
      return link.connect_later(clock_.now());
    }
    if (!received.value()) return;
    auto& message = received.value()->message;
    if (auto* hello = std::get_if<wire::PeerHello>(&message); hello && !link.greeted) {
      if (hello->job != job_ || hello->id != id) return close(link, "it answered for somebody else");
      auto pid = net::peer_pid(link.socket);
      greeted(link, pid.ok() ? pid.value() : link.pid, received.value()->fds);
    } else if (!link.greeted || !take_in(link, std::move(message), std::move(received.value()->fds))) {
      return close(link, "it sent something unexpected");
    }
  }
}

/// What came waits in the socket; the loop is not kept busy with it.
void Mesh::wait_for_descriptors(Link& link) {
  log::debug("what worker {} sent waits for free descriptors", link.member.id);
  loop_.unwatch(link.socket.get());
  link.full = true;
}

/// False if it is nothing that peers say to each other.
bool Mesh::take_in(Link& link, wire::Message message, std::vector<Fd> fds) {
  auto id = link.member.id;
  if (const auto* bye = std::get_if<wire::Bye>(&message))
    link.orderly = true, link.note_view(bye->view);
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
  parked_.park(std::move(letter));
}

void Mesh::subscribe(std::uint64_t view_hash, ViewEvents* events, std::uint64_t number) {
  run([&] {
    if (roads_) roads_->in_view(view_hash);
    views_[view_hash] = events;
    for (auto& letter : parked_.take(view_hash, number))
      events->on_message(letter.from, letter.message, std::move(letter.fds));
    for (const auto& [id, link] : links_)
      if (link.lost) events->on_lost(link.loss());
  });
}

void Mesh::unsubscribe(std::uint64_t view_hash) {
  run([&] { views_.erase(view_hash); });
}

// ---- losing ----

void Mesh::process_ended(std::uint64_t id) {
  auto& link = link_of(id);
  if (link.socket && !link.proven) read_peer(id);  // what it still had to say is in the socket, and comes first
  prove(link, "its process ended");
}

/// The connection ends, so that both sides begin again with a new one once it runs: nothing of the old one is answered
/// late.
void Mesh::stands_still(std::uint64_t id) {
  auto& link = link_of(id);
  if (!events_.loses_standing_still || link.lost) return;
  log::warn("worker {} (pid {}) does not run: the others go on without it until it does", id, link.pid);
  close(link, "it does not run");
}

void Mesh::believe_dead(std::uint64_t id, wire::LastView view) {
  loop_.post([this, id, view] {
    auto at = links_.find(id);
    if (at == links_.end() || id == self_.id) return;
    auto& link = at->second;
    if (link.remote && roads_ && !link.proven) roads_->forget(id);
    bool news = link.note_view(view);
    if (link.proven && news)
      tell(link);
    else if (link.remote)
      prove(link, "its host says that its process ended");
    else
      process_ended(id);  // its agent knows, perhaps before this worker could ever watch it
  });
}

void Mesh::leave_behind(std::uint64_t id, std::string what) {
  loop_.post([this, id, what = std::move(what)] {
    auto& link = link_of(id);
    if (link.remote && roads_) return roads_->leave_behind(id, what);
    log::warn("worker {} has broken a rule: it sent {}", id, what);
  });
}

void Mesh::note_view(wire::LastView view) { watch_->note_view(view); }

/// Nothing of its process will ever be heard again. What it has noted is read before it is forgotten.
void Mesh::bury(Link& link) {
  auto id = link.member.id;
  link.note_view(watch_->last_view(id));
  watch_->forget(id);
  parked_.drop_from(id);
}

void Mesh::prove(Link& link, const std::string& how) {
  bury(link);
  if (std::exchange(link.proven, true)) return;
  link.retry = false;
  if (link.lost)
    tell(link);  // again: now with proof
  else
    close(link, how);
}

void Mesh::close(Link& link, const std::string& how) {
  if (link.lost) return disconnect(link);
  link.lost = true;
  link.how = how;
  {
    std::lock_guard lock(mutex_);
    reached_.erase(link.member.id);
  }
  link.proven = link.proven || link.orderly || (!link.remote && watch_->has_ended(link.member.id));
  link.outbox.clear();
  disconnect(link);
  if (link.proven)
    bury(link);
  else
    link.connect_later(clock_.now());
  tell(link);
}

void Mesh::disconnect(Link& link) {
  link.greeted = link.full = false;
  if (link.socket) loop_.unwatch(link.socket.get());
  link.socket.reset();
}

void Mesh::tell(const Link& link) {
  auto loss = link.loss();
  for (auto& [hash, view] : views_) view->on_lost(loss);
  if (events_.on_lost) events_.on_lost(loss);
}

void Mesh::on_settled(std::set<std::uint64_t> at_hand) {
  loop_.post([this, at_hand = std::move(at_hand)] {
    for (auto at = links_.begin(); at != links_.end();) {
      auto& [id, link] = *at;
      bool of_no_interest = link.lost && link.proven && !at_hand.contains(id);
      bool before = std::exchange(link.settled_without, of_no_interest);
      if (before && of_no_interest && link.remote && roads_) roads_->erase(id);
      at = before && of_no_interest ? links_.erase(at) : std::next(at);
    }
  });
}

std::size_t Mesh::known() {
  std::size_t count = 0;
  run([&] { count = links_.size(); });
  return count;
}

// ---- sending ----

void Mesh::send(std::vector<std::uint64_t> ids, wire::Message message) {
  auto parcel = std::make_shared<Parcel>();
  parcel->message = std::move(message);
  post_parcel(std::move(parcel), std::move(ids));
}

Status Mesh::send(std::vector<std::uint64_t> ids, wire::Message message, const std::vector<int>& fds) {
  auto parcel = std::make_shared<Parcel>();
  parcel->message = std::move(message);
  for (int fd : fds) {
    parcel->fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!parcel->fds.back()) return errno_error("sending shared memory to neighbours");
  }
  post_parcel(std::move(parcel), std::move(ids));
  return {};
}

void Mesh::post_parcel(std::shared_ptr<const Parcel> parcel, std::vector<std::uint64_t> ids) {
  loop_.post([this, parcel = std::move(parcel), ids = std::move(ids)] {
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
  if (auto sent = link.flush(); !sent.ok()) close(link, sent.error().message);
}

void Mesh::say_goodbye(std::uint64_t view) {
  run([this, view] {
    auto parcel = std::make_shared<Parcel>();
    wire::Bye bye;
    bye.view = view;
    parcel->message = bye;
    for (auto& [id, link] : links_) {
      if ((!link.socket && !link.remote) || link.lost) continue;
      link.outbox.push_back(parcel);
      flush(link);
    }
  });
}

void Mesh::hang_up() {
  run([this] {
    for (auto& [id, link] : links_) {
      link.lost = true;
      link.retry = false;
      link.outbox.clear();
      disconnect(link);
      if (link.remote && roads_) roads_->forget(id);
    }
    std::lock_guard lock(mutex_);
    reached_.clear();
  });
}

}  // namespace pliant::collective
