#include "apps/pliant/coordinator_server.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "apps/pliant/command.h"
#include "base/log.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kTimeToSpeak = 5s;         // for a stranger's connection, and for the agent to name a process
constexpr Nanos kWorkersTimeToJoin = 60s;  // our own may be slow on a busy machine
constexpr std::size_t kSpareConnections = 64;
constexpr std::size_t kLongestOutbox = 4096;
constexpr int kAtOnce = 64;  // connections or packets per turn, so that nobody starves the others
constexpr std::size_t kLongestAddress = sizeof(sockaddr_un{}.sun_path) - 1;

}  // namespace

CoordinatorServer::CoordinatorServer(net::Loop& loop, Fd listener, const membership::CoordinatorOptions& options,
                                     const std::optional<membership::Memory>& memory, ServerEvents events,
                                     Chronicle& chronicle)
    : loop_(loop),
      listener_(std::move(listener)),
      coordinator_(options, memory),
      events_(std::move(events)),
      chronicle_(chronicle),
      most_strangers_(options.wanted + kSpareConnections),
      timer_(loop.every(500ms, [this] { sweep(); })),
      pulse_(loop.every(200ms, [this] { pulse(); })),
      processes_(loop, [this](std::uint64_t id) { on_gone(id); }) {
  loop_.watch(listener_.get(), [this] { accept_all(); });
  deliver(coordinator_.on_time(clock_.now()));
}

CoordinatorServer::~CoordinatorServer() {
  loop_.cancel(timer_);
  loop_.cancel(pulse_);
  if (flusher_) loop_.cancel(*flusher_);
  loop_.unwatch(listener_.get());
  for (const auto& [link, connection] : connections_) loop_.unwatch(connection.line.fd());
}

bool CoordinatorServer::attended() const {
  return processes_.any_runs() ||
         std::any_of(connections_.begin(), connections_.end(), [](const auto& entry) { return entry.second.placed(); });
}

// ---- connections ----

void CoordinatorServer::accept_all() {
  for (int i = 0; i < kAtOnce; ++i) {
    auto peer = net::accept_from(listener_);
    if (!peer.ok()) {
      ++refused_;
      log::debug("coordinator: {}", peer.error().message);
      if (peer.error().code == Code::refused) continue;
      // Out of descriptors, most likely. The listener stays readable: look away until the next sweep.
      loop_.unwatch(listener_.get());
      listening_ = false;
      return;
    }
    if (!peer.value()) return;
    Connection connection;
    connection.line = net::Line::local(std::move(peer.value()->socket));
    connection.pid = peer.value()->pid;
    add_connection(std::move(connection));
  }
}

void CoordinatorServer::add_connection(Connection connection) {
  make_room();
  auto link = next_link_++;
  auto& added = connections_[link] = std::move(connection);
  added.since = clock_.now();
  loop_.watch(added.line.fd(), [this, link] { read_from(link); });
  read_from(link);  // something may have come with the handshake
}

void CoordinatorServer::open_to_others(Fd listener, const net::Secret& secret) {
  net::GateOptions options;
  options.objection = [](const net::Introduction& who) {
    return who.purpose == net::Purpose::coordinator ? "" : "a call for somebody else";
  };
  gate_ = std::make_unique<net::Gate>(
      loop_, std::move(listener), secret, coordinator_.job(), [this](net::Guest guest) { admit(std::move(guest)); },
      std::move(options));
}

void CoordinatorServer::admit(net::Guest guest) {
  Connection connection;
  connection.line = net::Line::remote(std::move(guest.socket), std::move(guest.rest));
  connection.remote = guest.who;
  add_connection(std::move(connection));
}

/// Of too many connections without a place, the oldest stranger goes, or the oldest of all.
void CoordinatorServer::make_room() {
  auto unplaced = [](const auto& entry) { return !entry.second.placed(); };
  auto stranger = [&](const auto& entry) { return unplaced(entry) && !processes_.owner_of(entry.second.pid); };
  auto count = std::count_if(connections_.begin(), connections_.end(), unplaced);
  if (static_cast<std::size_t>(count) < most_strangers_) return;
  auto oldest = std::find_if(connections_.begin(), connections_.end(), stranger);
  if (oldest == connections_.end()) oldest = std::find_if(connections_.begin(), connections_.end(), unplaced);
  refuse(oldest->first, "too many connections that do not join");
}

void CoordinatorServer::sweep() {
  deliver(coordinator_.on_time(clock_.now()));
  std::vector<Link> slow;
  for (const auto& [link, connection] : connections_) {
    auto age = clock_.now() - connection.since;
    if (connection.placed() || age <= kTimeToSpeak) continue;
    if (age > kWorkersTimeToJoin || !processes_.owner_of(connection.pid)) slow.push_back(link);
  }
  for (auto link : slow) {
    const auto& connection = connections_.at(link);
    refuse(link, connection.request ? fmt::format("process {} does not belong to this job", connection.pid)
                                    : "no request to join within the first seconds");
  }
  if (listening_) return;
  listening_ = true;
  loop_.watch(listener_.get(), [this] { accept_all(); });
}

/// Far agents cannot see that this process is gone if its host goes with it.
void CoordinatorServer::pulse() {
  std::vector<Link> far;
  for (const auto& [link, connection] : connections_)
    if (connection.agent && connection.remote) far.push_back(link);
  for (auto link : far) send_to(link, wire::Pulse{});
}

void CoordinatorServer::read_from(Link link) {
  for (int i = 0; i < kAtOnce; ++i) {
    auto at = connections_.find(link);
    if (at == connections_.end()) return;
    auto received = at->second.line.receive();
    if (!received.ok()) {
      if (received.error().code == Code::protocol) {
        ++refused_;
        log::debug("coordinator: closed a connection of process {}: {}", at->second.pid, received.error().message);
      }
      return close(link);
    }
    if (!received.value()) return;
    on_message(link, received.value()->message);
  }
}

void CoordinatorServer::on_message(Link link, const wire::Message& message) {
  if (const auto* join = std::get_if<wire::Join>(&message)) return on_join(link, *join);
  if (const auto* hello = std::get_if<wire::AgentHello>(&message)) return on_hello(link, *hello);
  bool anybody_may = std::holds_alternative<wire::Resize>(message) || std::holds_alternative<wire::Replace>(message) ||
                     std::holds_alternative<wire::Stop>(message);
  if (!connections_.at(link).placed() && !anybody_may) return refuse(link, "join first");
  if (const auto* ended = std::get_if<wire::Ended>(&message)) hear_last_words(ended->id);
  if (!connections_.contains(link)) return;
  const auto* started = std::get_if<wire::Started>(&message);
  bool from_agent = connections_.at(link).agent;
  bool is_ours = from_agent && !connections_.at(link).remote;
  chronicle_.heard(connections_.at(link).worker, from_agent, message);
  deliver(coordinator_.on_message(link, message));
  if (started && is_ours) on_started(*started);
}

/// What a worker has said before its end comes before the word of its end.
void CoordinatorServer::hear_last_words(std::uint64_t id) {
  auto its = [&](const auto& entry) { return entry.second.worker == id; };
  if (auto at = std::find_if(connections_.begin(), connections_.end(), its); at != connections_.end())
    read_from(at->first);
}

void CoordinatorServer::on_hello(Link link, const wire::AgentHello& hello) {
  auto& connection = connections_.at(link);
  bool remote = connection.remote.has_value();
  if (!remote && !events_.is_agent(connection.pid))
    return refuse(link, fmt::format("process {} is not the agent of this job", connection.pid));
  if (remote && ((hello.host.empty() && hello.slots) || connection.worker))
    return refuse(link, "only an agent that names its host may start workers");
  if (!std::exchange(connection.agent, true)) {
    chronicle_.agent_came(connection.pid, hello.host);
    if (remote) send_to(link, wire::Charter{events_.charter()});
  }
  deliver(coordinator_.on_message(link, hello));
}

// ---- workers and their processes ----

void CoordinatorServer::on_join(Link link, const wire::Join& join) {
  auto& connection = connections_.at(link);
  if (connection.placed()) return refuse(link, "this connection has joined already");
  if (connection.remote) {
    if (join.id != connection.remote->from) return refuse(link, "it called in the name of another worker");
    return place(link, join);
  }
  if (join.pid != connection.pid)
    return refuse(link, fmt::format("process {} may not join in the name of process {}", connection.pid, join.pid));
  auto owner = processes_.owner_of(join.pid);
  if (owner && *owner != join.id)
    return refuse(link, fmt::format("process {} belongs to worker {}, not to worker {}", join.pid, *owner, join.id));
  if (!owner && processes_.knows(join.id))
    return refuse(link, fmt::format("process {} does not belong to this job", join.pid));
  if (!owner) {
    connection.request = join;
    return;
  }
  connection.request.reset();
  processes_.watch(join.id, join.pid);
  place(link, join);
}

void CoordinatorServer::place(Link link, const wire::Join& join) {
  connections_.at(link).worker = join.id;
  log::debug("coordinator: worker {} joins (process {})", join.id, join.pid);
  auto letters = coordinator_.on_join(link, join);
  bool welcome = std::ranges::none_of(letters, [&](const auto& letter) {
    return letter.to == link && std::holds_alternative<wire::Refusal>(letter.message);
  });
  if (welcome) chronicle_.joined(join);
  deliver(letters);
}

void CoordinatorServer::on_started(const wire::Started& started) {
  processes_.started(started.id, started.pid);
  std::vector<std::pair<Link, wire::Join>> waiting;
  for (const auto& [link, connection] : connections_)
    if (connection.request) waiting.emplace_back(link, *connection.request);
  for (const auto& [link, join] : waiting)
    if (connections_.contains(link)) on_join(link, join);
}

void CoordinatorServer::on_gone(std::uint64_t id) {
  log::debug("coordinator: the process of worker {} is gone", id);
  chronicle_.gone(id);
  deliver(coordinator_.on_gone(id));
}

// ---- sending ----

/// What a coordinator may promise that cannot leave it to its successor.
wire::Message CoordinatorServer::unsure(const wire::Message& message) {
  auto answer = std::get<wire::Answer>(message);
  if (answer.ok)
    answer.text += "; the store does not answer, so that another coordinator would not know of this: ask again later";
  return answer;
}

void CoordinatorServer::deliver(const membership::Letters& letters) {
  if (auto memory = coordinator_.memory(); kept_ != memory) {
    events_.remember(memory);
    // A view that was reported may hold workers that have not been heard of here.
    if (!kept_ || kept_->view.hash() != memory.view.hash())
      for (const auto& member : memory.view.members)
        if (member.host.empty()) know(member.id, member.pid);  // others are of other kernels, perhaps
    kept_ = memory;
  }
  chronicle_.look_at(coordinator_);
  for (const auto& letter : letters) {
    const auto* refusal = std::get_if<wire::Refusal>(&letter.message);
    if (refusal && connections_.contains(letter.to))
      refuse(letter.to, refusal->reason);
    else if (std::holds_alternative<wire::Answer>(letter.message))
      events_.once_sure(
          [this, letter](bool sure) { send_to(letter.to, sure ? letter.message : unsure(letter.message)); });
    else if (!refusal)
      send_to(letter.to, letter.message);
  }
  if (!coordinator_.needs_checkpoint()) return;
  auto newest = events_.newest_checkpoint();
  chronicle_.looked_for_checkpoint(newest);
  deliver(newest.ok() ? coordinator_.on_checkpoint(newest.value())
                      : coordinator_.on_checkpoint(std::nullopt, newest.error().message));
}

void CoordinatorServer::send_to(Link link, const wire::Message& message) {
  auto at = connections_.find(link);
  if (at == connections_.end()) return;
  auto& connection = at->second;
  chronicle_.says(connection.worker, message);
  connection.outbox.push(message);
  if (connection.outbox.size() > kLongestOutbox) return close(link);
  if (!connection.outbox.flush(connection.line)) return part_from(link);
  if (connection.waits() && !flusher_) flusher_ = loop_.every(10ms, [this] { flush_all(); });
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

void CoordinatorServer::refuse(Link link, const std::string& reason) {
  ++refused_;
  const auto& connection = connections_.at(link);
  log::debug("coordinator: refused process {}: {}", connection.pid, printable(reason));
  chronicle_.refused(connection.worker, connection.pid, reason);
  send_to(link, wire::Refusal{reason});
  close(link);
}

void CoordinatorServer::close(Link link) {
  auto at = connections_.find(link);
  if (at == connections_.end()) return;
  loop_.unwatch(at->second.line.fd());
  connections_.erase(at);
  deliver(coordinator_.on_closed(link));
}

std::string coordinator_address(const std::string& dir) {
  auto path = dir + "/coordinator.sock";
  return path.size() <= kLongestAddress ? path : fmt::format("@pliant/{:016x}", random_u64());
}

}  // namespace pliant::cli
