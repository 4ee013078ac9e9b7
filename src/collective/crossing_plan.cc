#include "collective/crossing_plan.h"

#include <algorithm>

#include "collective/directory.h"
#include "collective/streams.h"

namespace pliant::collective {
namespace {

constexpr std::size_t kLongestLeg = FrameHeader::kMostBytes;
static_assert(kLongestLeg % kPage == 0);

}  // namespace

Piece CrossingPlan::part(std::uint64_t chunk) const {
  if (ring.slots == 0) return whole;
  auto begin = chunk % static_cast<std::uint64_t>(ring.slots) * ring.chunk;
  auto before = chunk % ring.chunks * ring.chunk;  // bytes of this use in earlier chunks
  return {begin, begin + std::min(ring.chunk, bytes - before)};
}

std::vector<LegPlace> CrossingPlan::legs_of(int place, std::uint64_t chunk) const {
  std::vector<LegPlace> legs;
  auto [begin, end] = part(chunk);
  for (const auto& piece : pieces_of(stripes, place, begin, end, true))
    for (auto at = piece.begin; at < piece.end; at += kLongestLeg)
      legs.push_back({static_cast<std::uint32_t>(at / kPage),
                      piece.begin / stripes.stripe,
                      {at, std::min(piece.end, at + kLongestLeg)}});
  return legs;
}

std::optional<LegPlace> CrossingPlan::leg_at(std::uint64_t chunk, std::uint32_t number) const {
  auto [begin, end] = part(chunk);
  auto stripe = number * kPage / stripes.stripe;
  auto from = std::max(begin, stripe * stripes.stripe);
  auto to = std::min(end, (stripe + 1) * stripes.stripe);
  auto first = from / kPage;  // the page that the stripe's first leg begins in
  if (from >= to || number < first || (number - first) * kPage % kLongestLeg != 0) return std::nullopt;
  auto at = from + (number - first) * kPage;
  if (at >= to) return std::nullopt;
  return LegPlace{number, stripe, {at, std::min(to, at + kLongestLeg)}};
}

void OwnChannels::add(const Channel& channel, const CrossingPlan& plan) {
  std::lock_guard lock(mutex_);
  const auto& entry = entries_.emplace_back(Entry{&channel, plan});
  by_name_[std::string(channel.name_text())].push_back(&entry);
}

std::size_t OwnChannels::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

const OwnChannels::Entry* OwnChannels::at(std::uint64_t index) const {
  std::lock_guard lock(mutex_);
  return index < entries_.size() ? &entries_[index] : nullptr;
}

const OwnChannels::Entry* OwnChannels::counterpart(const Channel& theirs) const {
  std::lock_guard lock(mutex_);
  auto named = by_name_.find(std::string(theirs.name_text()));
  if (named == by_name_.end()) return nullptr;
  auto found = std::ranges::find_if(named->second, [&](const Entry* own) {
    return compare(*own->channel, own->channel->first_use, &theirs) == Match::agreed;
  });
  return found == named->second.end() ? nullptr : *found;
}

}  // namespace pliant::collective
