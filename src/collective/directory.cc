#include "collective/directory.h"

#include <fmt/format.h>

#include <algorithm>

namespace pliant::collective {

std::string describe(const Channel& channel) {
  const auto& shape = channel.shape;
  bool known = static_cast<int>(shape.dtype) < kDtypes && static_cast<int>(shape.op) < kOps;
  if (!known) return "something unreadable";
  auto text = fmt::format("{}[{}] {}", name_of(shape.dtype), shape.count, name_of(shape.op));
  if (shape.memory == Memory::plain) return text + ", plain memory";
  return text +
         fmt::format(", byte {} of the {} of region '{}'", shape.offset, channel.region_bytes, channel.region_text());
}

const Channel* PeerDirectory::find(const std::string& name, std::uint64_t use) {
  auto published = std::min<std::uint32_t>(control_->channels.load(std::memory_order_acquire), kMaxChannels);
  for (; scanned_ < published; ++scanned_) {
    const auto& channel = control_->channel[scanned_];
    by_name_[std::string(channel.name_text())].push_back(&channel);
  }
  auto at = by_name_.find(name);
  if (at == by_name_.end()) return nullptr;
  const Channel* newest = nullptr;
  for (const auto* channel : at->second)
    if (channel->first_use <= use) newest = channel;
  return newest;
}

Match compare(const Channel& own, std::uint64_t use, const Channel* theirs) {
  if (!theirs) return Match::unknown;
  bool region_fits = own.shape.memory == Memory::plain ||
                     (own.region_text() == theirs->region_text() && own.region_bytes == theirs->region_bytes);
  if (own.shape == theirs->shape && own.chunks == theirs->chunks && own.first_use == theirs->first_use && region_fits)
    return Match::agreed;
  bool reached = theirs->first_use == use ||
                 theirs->submitted.load(std::memory_order_acquire) > (use - theirs->first_use) * theirs->chunks;
  return reached ? Match::mismatch : Match::unknown;
}

}  // namespace pliant::collective
