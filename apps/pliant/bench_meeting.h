// Where the ranks of a measurement are, as if on several hosts if that is wanted: on loopback, or each host in a
// network namespace.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/pliant/bench_allreduce.h"
#include "base/fd.h"
#include "collective/mesh.h"
#include "net/tcp.h"
#include "net/trust.h"
#include "wire/messages.h"

namespace pliant::cli {

/// Where the ranks of a case are, and how they reach each other.
struct Meeting {
  std::vector<wire::Member> members;
  std::vector<Fd> listeners;            // for ranks of the same host
  std::vector<net::Listener> gates;     // for those of others; empty if there is one host
  std::vector<std::string> namespaces;  // by rank
  net::Secret secret = net::Secret::random();
  bool trusted_network = false;
};

/// Throws if a namespace cannot be entered, or has no address.
Meeting meet(const AllReduceCase& what);
/// In the process of this rank, which stays in the namespace of its host.
std::unique_ptr<collective::Mesh> mesh_of(Meeting& meeting, int rank);

}  // namespace pliant::cli
