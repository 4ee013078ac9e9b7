#include "collective/mirror.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace pliant::collective {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 50;

net::Mapping make_memory() {
  void* at = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw Failure(Code::io, errno_error("a mirror").message);
  return {at, sizeof(Control)};
}

std::atomic<std::uint64_t>& counter_in(Channel& channel, Counter counter) {
  if (counter == Counter::submitted) return channel.submitted;
  return counter == Counter::reduced ? channel.reduced : channel.copied;
}

std::string quoted_name(const Channel& channel) { return fmt::format("'{}'", printable(channel.name_text())); }

}  // namespace

Mirror::Mirror(std::uint64_t view_hash, int rank, int ranks, const Control& own, const OwnChannels& channels)
    : ranks_(ranks), own_(own), channels_(channels), memory_(make_memory()) {
  words()->magic = kControlMagic;
  words()->view_hash = view_hash;
  words()->rank = static_cast<std::uint32_t>(rank);
  words()->ranks = static_cast<std::uint32_t>(ranks);
}

Status Mirror::take(const FrameHeader& header, const std::byte* bytes) {
  switch (header.kind) {
    case kAnnounce:
      return announce(header, bytes);
    case kProgress:
      return progress(header);
    case kRow:
      return row(header, bytes);
    case kState:
      return state(header, bytes);
    default:
      return malformed(fmt::format("a frame of kind {}, which does not exist", header.kind));
  }
}

/// Descriptions come in their order, so the place behind the last one is read by nobody yet.
Status Mirror::announce(const FrameHeader& header, const std::byte* bytes) {
  auto next = words()->channels.load(std::memory_order_relaxed);
  if (header.index != next || next == kMaxChannels || header.bytes != kDescription)
    return malformed(fmt::format("description {} of a channel, of {} bytes, where number {} of {} bytes comes next",
                                 header.index, header.bytes, next, kDescription));
  auto& channel = words()->channel[next];
  std::memcpy(static_cast<void*>(&channel), bytes, kDescription);
  PLIANT_TRY(check(channel));
  first_uses_[std::string(channel.name_text())] = channel.first_use;
  counterparts_.push_back(nullptr);
  words()->channels.store(next + 1, std::memory_order_seq_cst);
  return {};
}

Status Mirror::check(const Channel& channel) const {
  const auto& shape = channel.shape;
  bool known = static_cast<int>(shape.dtype) < kDtypes && static_cast<int>(shape.op) < kOps &&
               (shape.memory == Memory::registered || shape.memory == Memory::plain);
  bool named = channel.name_length > 0 && channel.name_length <= kMaxChannelName && channel.region_length > 0 &&
               channel.region_length <= kMaxChannelName;
  if (!known || !named || shape.count == 0 || shape.count > kMostElements)
    return malformed("a description of a channel that nobody can have made");
  auto bytes = shape.count * size_of(shape.dtype);
  bool plain = shape.memory == Memory::plain;
  auto chunks = plain ? ring_for(bytes, ranks_).chunks : 1;
  bool inside = plain ? shape.offset == 0
                      : shape.offset % size_of(shape.dtype) == 0 && bytes <= channel.region_bytes &&
                            shape.offset <= channel.region_bytes - bytes;
  if (channel.chunks != chunks || !inside)
    return malformed(fmt::format("channel {} of {} bytes at {} of {}, in {} chunks where there are {}",
                                 quoted_name(channel), bytes, shape.offset, channel.region_bytes, channel.chunks,
                                 chunks));
  auto before = first_uses_.find(std::string(channel.name_text()));
  if (before == first_uses_.end() ? channel.first_use != 0 : channel.first_use <= before->second)
    return malformed(
        fmt::format("channel {} from use {} on, which it cannot be", quoted_name(channel), channel.first_use));
  return {};
}

Status Mirror::progress(const FrameHeader& header) {
  if (header.index >= words()->channels.load(std::memory_order_relaxed) || header.slot / 2 >= kCounters ||
      header.bytes != 0)
    return malformed(fmt::format("progress {} of channel {}, of which it has described {}", header.slot, header.index,
                                 words()->channels.load(std::memory_order_relaxed)));
  auto& channel = words()->channel[header.index];
  auto which = static_cast<Counter>(header.slot / 2);
  auto slot = header.slot % 2;
  auto& counter = counter_in(channel, which);
  auto now = counter.load(std::memory_order_relaxed);
  // Results that nobody confirms one by one are not told as copied: that counter alone may leave some out.
  auto most = which == Counter::copied ? channel.reduced.load(std::memory_order_relaxed) : now + 1;
  if (header.value <= now || header.value > most)
    return malformed(fmt::format("a counter of channel {} that goes from {} to {}, where at most {} is possible",
                                 quoted_name(channel), now, header.value, most));
  if (static_cast<std::uint64_t>(slot) != (channel.first_use + (header.value - 1) / channel.chunks) % 2)
    return malformed(fmt::format("progress of channel {} for another use than its own", quoted_name(channel)));
  if (which == Counter::reduced) PLIANT_TRY(check_reduced(header.index, header.value));
  if (which == Counter::submitted) channel.weight[slot] = header.number;
  if (which == Counter::reduced) channel.measured[slot] = {header.number, header.spread};
  counter.store(header.value, std::memory_order_seq_cst);
  return {};
}

/// Nobody reduces what this rank has not described, nor more than a few chunks that it has not reduced.
Status Mirror::check_reduced(std::uint32_t index, std::uint64_t value) {
  auto& own = counterparts_[index];
  if (!own) own = channels_.counterpart(words()->channel[index]);
  auto most = own ? own->channel->reduced.load(std::memory_order_acquire) + own->plan.ahead() : 0;
  if (value <= most) return {};
  return malformed(fmt::format("{} chunks of channel {} reduced, where at most {} can be", value,
                               quoted_name(words()->channel[index]), most));
}

/// There is room for two rows. Whoever publishes the next one has seen this rank's last one, so the one before that is
/// not read any more.
Status Mirror::row(const FrameHeader& header, const std::byte* bytes) {
  auto next = words()->rows.load(std::memory_order_relaxed) + 1;
  auto most = own_.rows.load(std::memory_order_acquire) + 1;
  if (header.value != next || next > most || header.bytes > kRowBytes)
    return malformed(fmt::format("row {} of {} bytes, where row {} is next and at most row {} of {} bytes is possible",
                                 header.value, header.bytes, next, most, kRowBytes));
  auto at = (next - 1) % 2;
  if (header.bytes > 0) std::memcpy(words()->row[at], bytes, header.bytes);
  words()->row_size[at] = header.bytes;
  words()->rows.store(next, std::memory_order_seq_cst);
  return {};
}

Status Mirror::state(const FrameHeader& header, const std::byte* bytes) {
  auto most = own_.confirmed.load(std::memory_order_acquire) + 1;
  bool waits_for_known =
      header.index <= words()->channels.load(std::memory_order_relaxed) || header.index == kBlockedOnRows;
  if (!waits_for_known || header.use > most || header.bytes > sizeof(Control::complaint))
    return malformed(
        fmt::format("that it waits for channel {}, has confirmed {} times where {} are possible, and a "
                    "complaint of {} bytes",
                    header.index, header.use, most, header.bytes));
  words()->blocked_on.store(header.index, std::memory_order_release);
  words()->blocked_turns.store(static_cast<std::uint32_t>(header.value), std::memory_order_release);
  // Several threads of the other rank say this, and what they have read may come in another order.
  if (words()->confirmed.load(std::memory_order_relaxed) < header.use)
    words()->confirmed.store(header.use, std::memory_order_seq_cst);
  // The first complaint stands: others may be reading it.
  if (header.bytes == 0 || words()->complaint_length.load(std::memory_order_relaxed) > 0) return {};
  std::memcpy(words()->complaint, bytes, header.bytes);
  words()->complaint_length.store(header.bytes, std::memory_order_release);
  return {};
}

}  // namespace pliant::collective
