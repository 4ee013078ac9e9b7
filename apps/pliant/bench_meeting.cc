#include "apps/pliant/bench_meeting.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "base/system.h"
#include "net/socket.h"

namespace pliant::cli {
namespace {

/// Moves this thread into a network namespace: sockets made from now on belong there. Empty: stays.
void enter_namespace(const std::string& name) {
  if (name.empty()) return;
  Fd space(open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!space || setns(space.get(), CLONE_NEWNET) != 0)
    throw Failure(Code::io, errno_error(fmt::format("cannot enter the network namespace '{}'", name)).message);
}

/// The first address in this namespace that others can reach.
std::string own_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) throw Failure(Code::io, errno_error("getifaddrs").message);
  std::string found;
  for (const auto* at = all; at && found.empty(); at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_LOOPBACK)) continue;
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text, sizeof(text));
    found = text;
  }
  freeifaddrs(all);
  if (found.empty()) throw Failure(Code::io, "a network namespace without an IPv4 address");
  return found;
}

}  // namespace

Meeting meet(const AllReduceCase& what) {
  Meeting meeting;
  meeting.trusted_network = what.trusted_network;
  Fd home(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  for (int rank = 0; rank < what.ranks; ++rank) {
    auto host = static_cast<std::size_t>(rank * what.hosts / what.ranks);
    meeting.namespaces.push_back(what.namespaces.empty() ? "" : what.namespaces[host]);
    enter_namespace(meeting.namespaces.back());
    auto address = fmt::format("@pliant-bench/{:016x}", random_u64());
    meeting.listeners.push_back(net::listen_at(address).or_throw());
    wire::Member member{static_cast<std::uint64_t>(rank), getpid(), address};
    if (what.hosts > 1) {
      auto at = what.namespaces.empty() ? std::string("127.0.0.1") : own_address();
      meeting.gates.push_back(net::tcp_listen(at, {}).or_throw());
      member.host = fmt::format("host{}", host);
      member.endpoint = meeting.gates.back().endpoint.text();
    }
    meeting.members.push_back(std::move(member));
    if (!meeting.namespaces.back().empty() && setns(home.get(), CLONE_NEWNET) != 0)
      throw Failure(Code::io, errno_error("cannot come home").message);
  }
  return meeting;
}

std::unique_ptr<collective::Mesh> mesh_of(Meeting& meeting, int rank) {
  auto at = static_cast<std::size_t>(rank);
  enter_namespace(meeting.namespaces[at]);
  std::optional<collective::HostsOptions> hosts;
  if (!meeting.gates.empty()) {
    hosts = {meeting.secret, std::move(meeting.gates[at].socket), ""};
    hosts->trusted = meeting.trusted_network;
  }
  return std::make_unique<collective::Mesh>("bench", meeting.members[at], std::move(meeting.listeners[at]),
                                            collective::MeshEvents{}, std::move(hosts));
}

}  // namespace pliant::cli
