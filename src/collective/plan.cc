#include "collective/plan.h"

#include <algorithm>

namespace pliant::collective {
namespace {

constexpr std::size_t kLargestStripe = 256 * 1024;
constexpr std::size_t kHugeStripesEach = 32;  // from so many per rank on, huge ones divide the work evenly enough
constexpr std::size_t kMostStripes = 8192;
constexpr std::size_t kChunk = 256 * 1024;
constexpr std::size_t kSlotsPerRank = 4;
constexpr std::size_t kMostSlots = 16;

}  // namespace

int Topology::widest() const {
  std::size_t most = 0;
  for (const auto& ranks : hosts) most = std::max(most, ranks.size());
  return static_cast<int>(most);
}

Topology topology_of(const std::vector<std::string>& host_by_rank) {
  Topology topology;
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < host_by_rank.size(); ++rank) {
    auto host = static_cast<std::size_t>(std::ranges::find(names, host_by_rank[rank]) - names.begin());
    if (host == names.size()) {
      names.push_back(host_by_rank[rank]);
      topology.hosts.emplace_back();
    }
    topology.host_of.push_back(static_cast<int>(host));
    topology.place_of.push_back(static_cast<int>(topology.hosts[host].size()));
    topology.hosts[host].push_back(static_cast<int>(rank));
  }
  return topology;
}

/// In turns of as many as the widest host has ranks, so that each of them finalises as much as the others.
int final_host(std::size_t stripe, const Topology& topology) {
  return static_cast<int>(stripe / static_cast<std::size_t>(topology.widest()) % topology.hosts.size());
}

int carrier(std::size_t stripe, int host, const Topology& topology) {
  const auto& ranks = topology.hosts[static_cast<std::size_t>(host)];
  return ranks[stripe % ranks.size()];
}

std::size_t Stripes::owned(int rank) const {
  auto total = count();
  auto mine = total / ranks + (total % ranks > static_cast<std::size_t>(rank) ? 1 : 0);
  if (mine == 0) return 0;
  bool has_last = owner(total - 1) == rank;
  return mine * stripe - (has_last ? total * stripe - bytes : 0);
}

Stripes stripes_for(std::size_t bytes, int ranks, int sharers) {
  bytes = round_up(std::max<std::size_t>(bytes, 1), kPage);
  auto parts = static_cast<std::size_t>(std::max(ranks, sharers));
  auto share = round_up((bytes + parts - 1) / parts, kPage);
  auto stripe = std::min(share, kLargestStripe);
  stripe = std::max(stripe, round_up(bytes / kMostStripes, kPage));
  bool one_host = parts == static_cast<std::size_t>(ranks);
  if (one_host && share >= kHugeStripesEach * net::kHugePage) stripe = round_up(stripe, net::kHugePage);
  return {bytes, stripe, ranks};
}

std::vector<Piece> pieces_of(const Stripes& stripes, int rank, std::size_t begin, std::size_t end, bool apart) {
  std::vector<Piece> pieces;
  if (begin >= end) return pieces;
  auto first = begin / stripes.stripe;
  auto n = static_cast<std::size_t>(stripes.ranks);
  auto index = first + (static_cast<std::size_t>(rank) + n - first % n) % n;
  for (; index * stripes.stripe < end; index += n) {
    auto from = std::max(begin, index * stripes.stripe);
    auto to = std::min(end, (index + 1) * stripes.stripe);
    if (!apart && !pieces.empty() && pieces.back().end == from)
      pieces.back().end = to;  // a single rank owns everything: one long piece
    else
      pieces.push_back({from, to});
  }
  return pieces;
}

Ring ring_for(std::size_t bytes, int ranks) {
  Ring ring;
  auto whole = round_up(std::max<std::size_t>(bytes, 1), kPage);
  // Small chunks stay in the caches between copying in, reducing and copying out; every rank still gets whole pages.
  ring.chunk = std::min(whole, std::max(kChunk, kPage * static_cast<std::size_t>(ranks)));
  ring.chunks = (std::max<std::size_t>(bytes, 1) + ring.chunk - 1) / ring.chunk;
  ring.slots = static_cast<int>(std::min({ring.chunks, kSlotsPerRank * static_cast<std::size_t>(ranks), kMostSlots}));
  return ring;
}

}  // namespace pliant::collective
