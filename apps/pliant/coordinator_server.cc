#include "apps/pliant/coordinator_server.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <variant>

#include "apps/pliant/command.h"
#include "base/log.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kTimeToJoin = 5s;          // for a stranger's connection to send its Join
constexpr Nanos kWorkersTimeToJoin = 60s;  // our own may be slow on a busy machine
constexpr std::size_t kSpareConnections = 64;
constexpr int kAtOnce = 64;  // connections or packets per turn, so that nobody starves the others
constexpr int kMoreThanASocketHolds = 4096;
constexpr std::size_t kLongestAddress = sizeof(sockaddr_un{}.sun_path) - 1;

}  // namespace

CoordinatorServer::CoordinatorServer(net::Loop& loop, Fd listener, const membership::CoordinatorOptions& options,
                                     CoordinatorEvents events)
    : loop_(loop),
      listener_(std::move(listener)),
      coordinator_(options),
      events_(std::move(events)),
      most_unjoined_(static_cast<std::size_t>(options.workers) + kSpareConnections),
      timer_(loop.every(500ms, [this] { close_slow_ones(); })) {
  loop_.watch(listener_.get(), [this] { accept_all(); });
}

CoordinatorServer::~CoordinatorServer() {
  loop_.cancel(timer_);
  loop_.unwatch(listener_.get());
  for (const auto& [link, connection] : connections_) loop_.unwatch(connection.socket.get());
}

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
    make_room();
    auto link = next_link_++;
    auto& connection = connections_[link];
    auto pid = peer.value()->pid;
    connection = {std::move(peer.value()->socket), pid, events_.worker_of(pid), clock_.now(), std::nullopt};
    loop_.watch(connection.socket.get(), [this, link] { read_from(link, kAtOnce); });
  }
}

/// Of too many connections that have not joined, the oldest stranger goes, or the oldest of all.
void CoordinatorServer::make_room() {
  auto unjoined = [](const auto& entry) { return !entry.second.rank; };
  auto stranger = [](const auto& entry) { return !entry.second.rank && !entry.second.worker; };
  auto count = std::count_if(connections_.begin(), connections_.end(), unjoined);
  if (static_cast<std::size_t>(count) < most_unjoined_) return;
  auto oldest = std::find_if(connections_.begin(), connections_.end(), stranger);
  if (oldest == connections_.end()) oldest = std::find_if(connections_.begin(), connections_.end(), unjoined);
  refuse(oldest->first, "too many connections that do not join");
}

void CoordinatorServer::close_slow_ones() {
  std::vector<Link> slow;
  for (const auto& [link, connection] : connections_) {
    Nanos limit = connection.worker ? kWorkersTimeToJoin : kTimeToJoin;
    if (!connection.rank && clock_.now() - connection.since > limit) slow.push_back(link);
  }
  for (auto link : slow) refuse(link, "no request to join within the first seconds");
  if (listening_) return;
  listening_ = true;
  loop_.watch(listener_.get(), [this] { accept_all(); });
}

void CoordinatorServer::read_from(Link link, int most) {
  for (int i = 0; i < most; ++i) {
    auto at = connections_.find(link);
    if (at == connections_.end()) return;
    auto received = net::receive(at->second.socket);
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
  auto rank = connections_.at(link).rank;
  if (!rank) return refuse(link, "join first");
  if (const auto* progress = std::get_if<wire::Progress>(&message)) return events_.on_progress(*rank, *progress);
  if (const auto* complaint = std::get_if<wire::Complaint>(&message)) return events_.on_complaint(*rank, *complaint);
  if (std::holds_alternative<wire::Bye>(message)) return;
  ++refused_;
  log::debug("coordinator: worker {} sent a message that is not meant for the coordinator", *rank);
}

std::string CoordinatorServer::objection_to(const Connection& connection, const wire::Join& join) const {
  if (given_up_) return *given_up_;
  if (connection.rank) return fmt::format("this connection has joined as worker {} already", *connection.rank);
  if (join.pid != connection.pid)
    return fmt::format("process {} may not join in the name of process {}", connection.pid, join.pid);
  if (!connection.worker) return fmt::format("process {} does not belong to this job", connection.pid);
  if (join.id != static_cast<std::uint64_t>(*connection.worker))
    return fmt::format("process {} belongs to worker {}, not to worker {}", connection.pid, *connection.worker,
                       join.id);
  // Longer ones cannot be connected to, and 512 of them would not fit into one notice.
  if (join.address.size() > kLongestAddress) return "the address is too long";
  return {};
}

void CoordinatorServer::on_join(Link link, const wire::Join& join) {
  auto& connection = connections_.at(link);
  if (auto reason = objection_to(connection, join); !reason.empty()) return refuse(link, reason);
  auto answers = coordinator_.on_join(link, join);
  if (!answers.empty())
    if (const auto* refusal = std::get_if<wire::Refusal>(&answers[0].message)) return refuse(link, refusal->reason);
  connection.rank = static_cast<int>(join.id);
  log::debug("coordinator: worker {} joined (process {})", join.id, join.pid);
  for (const auto& answer : answers)
    std::visit([&](const auto& message) { send_to(answer.to, message); }, answer.message);
}

void CoordinatorServer::send_to(Link link, const wire::Message& message) {
  auto at = connections_.find(link);
  if (at == connections_.end()) return;
  if (auto sent = net::send(at->second.socket, message); !sent.ok()) {
    log::debug("coordinator: {}", sent.error().message);
    close(link);
  }
}

void CoordinatorServer::refuse(Link link, const std::string& reason) {
  ++refused_;
  log::debug("coordinator: refused process {}: {}", connections_.at(link).pid, printable(reason));
  send_to(link, wire::Refusal{reason});
  close(link);
}

void CoordinatorServer::close(Link link) {
  auto at = connections_.find(link);
  if (at == connections_.end()) return;
  loop_.unwatch(at->second.socket.get());
  connections_.erase(at);
  coordinator_.on_closed(link);
}

void CoordinatorServer::drain() {
  std::vector<Link> links;
  for (const auto& [link, connection] : connections_) links.push_back(link);
  for (auto link : links) read_from(link, kMoreThanASocketHolds);
}

void CoordinatorServer::give_up(const std::string& reason) {
  if (formed() || given_up_) return;
  given_up_ = reason;
  std::vector<Link> waiting;
  for (const auto& [link, connection] : connections_)
    if (connection.rank) waiting.push_back(link);
  for (auto link : waiting) refuse(link, reason);
}

bool CoordinatorServer::has_joined(int rank) const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [&](const auto& entry) { return entry.second.rank == rank; });
}

bool CoordinatorServer::has_joined() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& entry) { return entry.second.rank.has_value(); });
}

std::string coordinator_address(const std::string& dir) {
  auto path = dir + "/coordinator.sock";
  return path.size() <= kLongestAddress ? path : fmt::format("@pliant/{:016x}", random_u64());
}

}  // namespace pliant::cli
