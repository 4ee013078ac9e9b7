// Teams on several hosts, as far as they can tell: ranks as threads that share memory only with those of their host,
// and reach the others over TCP on loopback.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <memory>
#include <utility>
#include <vector>

#include "collective/mesh.h"
#include "collective/streams.h"
#include "collective/team.h"

namespace pliant::collective {

/// Two ends of a TCP connection.
inline std::pair<Fd, Fd> tcp_pair() {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* raw = reinterpret_cast<sockaddr*>(&at);
  if (bind(listener.get(), raw, size) != 0 || listen(listener.get(), 1) != 0) throw Failure(Code::io, "listen");
  getsockname(listener.get(), raw, &size);
  Fd one(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(one.get(), raw, size) != 0) throw Failure(Code::io, "connect");
  Fd other(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  fcntl(one.get(), F_SETFL, O_NONBLOCK);
  int yes = 1;
  for (int fd : {one.get(), other.get()}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  return {std::move(one), std::move(other)};
}

/// A team whose rank r is on host `hosts[r]`.
class HostsPlan {
 public:
  explicit HostsPlan(const std::vector<int>& hosts, std::uint32_t lanes = 3) : plan_(static_cast<int>(hosts.size())) {
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      plan_.members[rank].host = "host" + std::to_string(hosts[rank]);
      streams_.push_back(std::make_unique<Streams>([](std::uint64_t, const std::string&) {}));
    }
    for (std::size_t a = 0; a < hosts.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        for (std::uint32_t lane = 0; lane < lanes && hosts[a] != hosts[b]; ++lane) {
          auto [one, other] = tcp_pair();
          streams_[a]->add(b, lane, std::move(one));
          streams_[b]->add(a, lane, std::move(other));
        }
  }
  int size() const { return static_cast<int>(streams_.size()); }
  Streams& streams(int rank) { return *streams_[static_cast<std::size_t>(rank)]; }
  /// `body(group)` as rank `rank`, with a mesh of its own.
  void run(int rank, const std::function<void(Group&)>& body, const GroupOptions& options = {}) {
    auto at = static_cast<std::size_t>(rank);
    Mesh mesh("test", plan_.members[at], std::move(plan_.listeners[at]));
    auto group = Group::form(plan_.team(rank), &mesh, options, streams_[at].get()).or_throw();
    body(*group);
    group->leave();
  }

 private:
  TeamPlan plan_;
  std::vector<std::unique_ptr<Streams>> streams_;
};

inline void run_hosts(const std::vector<int>& hosts, const std::function<void(Group&)>& body,
                      const GroupOptions& options = {}) {
  HostsPlan plan(hosts);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < plan.size(); ++rank) threads.emplace_back([&, rank] { plan.run(rank, body, options); });
  for (auto& thread : threads) thread.join();
}

}  // namespace pliant::collective
