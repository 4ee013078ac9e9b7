#include "collective/plan.h"

#include <algorithm>

namespace pliant::collective {
namespace {

constexpr std::size_t kLargestStripe = 256 * 1024;
constexpr std::size_t kMostStripes = 8192;
constexpr std::size_t kChunk = 256 * 1024;
constexpr std::size_t kSlotsPerRank = 4;
constexpr std::size_t kMostSlots = 16;

}  // namespace

std::size_t Stripes::owned(int rank) const {
  auto total = count();
  auto mine = total / ranks + (total % ranks > static_cast<std::size_t>(rank) ? 1 : 0);
  if (mine == 0) return 0;
  bool has_last = owner(total - 1) == rank;
  return mine * stripe - (has_last ? total * stripe - bytes : 0);
}

Stripes stripes_for(std::size_t bytes, int ranks) {
  bytes = round_up(std::max<std::size_t>(bytes, 1), kPage);
  auto share = round_up((bytes + ranks - 1) / ranks, kPage);
  auto stripe = std::min(share, kLargestStripe);
  stripe = std::max(stripe, round_up(bytes / kMostStripes, kPage));
  return {bytes, stripe, ranks};
}

std::vector<Piece> pieces_of(const Stripes& stripes, int rank, std::size_t begin, std::size_t end) {
  std::vector<Piece> pieces;
  if (begin >= end) return pieces;
  auto first = begin / stripes.stripe;
  auto n = static_cast<std::size_t>(stripes.ranks);
  auto index = first + (static_cast<std::size_t>(rank) + n - first % n) % n;
  for (; index * stripes.stripe < end; index += n) {
    auto from = std::max(begin, index * stripes.stripe);
    auto to = std::min(end, (index + 1) * stripes.stripe);
    if (!pieces.empty() && pieces.back().end == from)
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
