// Plans: pure functions from sizes to who does what. A topology is data that a test can read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "net/shared_memory.h"

namespace pliant::collective {

using net::kPage;
using net::round_up;

/// Which ranks share a host. Hosts are in the order of their first rank.
struct Topology {
  std::vector<std::vector<int>> hosts;  ///< ranks, ascending
  std::vector<int> host_of, place_of;   ///< by rank: its host, and its place among the host's ranks

  int host_count() const { return static_cast<int>(hosts.size()); }
  /// Ranks on the host that has most.
  int widest() const;
};
Topology topology_of(const std::vector<std::string>& host_by_rank);

/// How the pages of a result belong to ranks: stripe i (of `stripe` bytes) belongs to rank i mod `ranks`.
/// Stripes are whole pages, because each rank's stripes live in its own memfd.
struct Stripes {
  std::size_t bytes = 0;  ///< of the whole result, a multiple of a page
  std::size_t stripe = 0;
  int ranks = 1;

  std::size_t count() const { return (bytes + stripe - 1) / stripe; }
  int owner(std::size_t index) const { return static_cast<int>(index % static_cast<std::size_t>(ranks)); }
  /// Bytes that `rank` owns: its stripes, packed one behind the other in its memfd.
  std::size_t owned(int rank) const;
};

/// Even shares for small results, interleaved stripes of at most 256 KiB for large ones: a part of a large region
/// then still has work for everybody, and the number of mappings stays bounded (8,192 per result). On one host stripes
/// of very large results (64 MiB for each rank) are huge pages: those are mapped 20 times as fast. A single part of 2
/// MiB or less then belongs to one rank, and only many that are in flight together are divided. Between hosts, a stripe
/// is also what travels as one, and all hosts have the same ones: `sharers` is by how many a result is divided in all,
/// if not by `ranks`.
Stripes stripes_for(std::size_t bytes, int ranks, int sharers = 0);

/// The host that finalises a stripe of a result that several hosts have part in.
int final_host(std::size_t stripe, const Topology& topology);
/// The rank that carries a stripe on a host.
int carrier(std::size_t stripe, int host, const Topology& topology);

struct Piece {
  std::size_t begin = 0;  ///< bytes from the start of the region
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
  bool operator==(const Piece&) const = default;
};
/// What `rank` finalises of [begin, end): the parts of its stripes in there, in order.
/// With stripes that touch as pieces of their own if `apart`.
std::vector<Piece> pieces_of(const Stripes& stripes, int rank, std::size_t begin, std::size_t end, bool apart = false);

/// How plain memory passes through a ring of slots in shared memory. More ranks get a longer ring: where they outnumber
/// the cores, a rank that gets one then has more to do before it must wait for others to get theirs.
struct Ring {
  std::size_t chunk = 0;  ///< bytes per slot, a multiple of a page
  int slots = 0;
  std::size_t chunks = 0;  ///< of the whole message
};
Ring ring_for(std::size_t bytes, int ranks);

}  // namespace pliant::collective
