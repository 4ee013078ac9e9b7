// Teams on several hosts, as far as they can tell: ranks as threads that share memory only with those of their host,
// and reach the others over TCP on loopback.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "collective/mesh.h"
#include "collective/team.h"
#include "net/tcp.h"

namespace pliant::collective {

/// A team whose rank r is on host `hosts[r]`.
class HostsPlan {
 public:
  explicit HostsPlan(const std::vector<int>& hosts) : plan_(static_cast<int>(hosts.size())) {
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      gates_.push_back(net::tcp_listen("127.0.0.1", {}).or_throw());
      plan_.members[rank].host = "host" + std::to_string(hosts[rank]);
      plan_.members[rank].endpoint = gates_.back().endpoint.text();
    }
  }
  int size() const { return static_cast<int>(gates_.size()); }
  /// `body(group)` as rank `rank`, with a mesh of its own.
  void run(int rank, const std::function<void(Group&)>& body, const GroupOptions& options = {}) {
    auto at = static_cast<std::size_t>(rank);
    HostsOptions road{secret_, std::move(gates_[at].socket), "", std::chrono::seconds(60)};
    Mesh mesh("test", plan_.members[at], std::move(plan_.listeners[at]), {}, std::move(road));
    auto group = Group::form(plan_.team(rank), &mesh, options).or_throw();
    body(*group);
    group->leave();
  }

 private:
  TeamPlan plan_;
  net::Secret secret_ = net::Secret::random();
  std::vector<net::Listener> gates_;
};

inline void run_hosts(const std::vector<int>& hosts, const std::function<void(Group&)>& body,
                      const GroupOptions& options = {}) {
  HostsPlan plan(hosts);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < plan.size(); ++rank) threads.emplace_back([&, rank] { plan.run(rank, body, options); });
  for (auto& thread : threads) thread.join();
}

}  // namespace pliant::collective
