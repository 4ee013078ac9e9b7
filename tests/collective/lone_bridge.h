// A bridge whose peers are whoever calls it: frames are handed to it as the streams' thread would.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "collective/bridge.h"

namespace pliant::collective {

/// Rank 0, on a host of its own, of a team with ranks 1 on a second host, and 2 and 3 on a third.
class LoneBridge {
 public:
  static constexpr std::uint64_t kView = 77;
  static constexpr std::uint64_t kId = 100;  ///< rank r has id kId + r

  LoneBridge() {
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<std::string> names{"a", "b", "c", "c"};
      team_.members.push_back({kId + static_cast<std::uint64_t>(rank), 1, "", names[static_cast<std::size_t>(rank)]});
    }
    team_.view_hash = kView;
    topology_ = topology_of({"a", "b", "c", "c"});
    BridgeEvents events{[this] { ++nudges_; }, [this] { return over_; }};
    bridge_ = std::make_unique<Bridge>(team_, topology_, streams_, own(), std::move(events));
  }

  Bridge& bridge() { return *bridge_; }
  Control& own() { return *reinterpret_cast<Control*>(own_.data()); }
  const Topology& topology() const { return topology_; }
  void end_view() { over_ = true; }
  int nudges() const { return nudges_; }

  /// A description as all ranks make it: f32 in registered memory of `bytes`, or plain memory.
  static void fill(Channel& channel, const std::string& name, std::size_t bytes, Memory memory) {
    channel.shape = {.count = bytes / 4, .memory = memory};
    channel.chunks = memory == Memory::plain ? ring_for(bytes, 4).chunks : 1;
    channel.name_length = channel.region_length = static_cast<std::uint8_t>(name.size());
    std::memcpy(channel.name, name.data(), name.size());
    std::memcpy(channel.region, name.data(), name.size());
    channel.region_bytes = round_up(bytes, kPage);
  }
  /// This rank describes a channel.
  CrossingPlan describe(const std::string& name, std::size_t bytes, Memory memory = Memory::registered) {
    auto index = own().channels.load();
    fill(own().channel[index], name, bytes, memory);
    auto ring = ring_for(bytes, 4);
    auto plan =
        memory == Memory::plain
            ? CrossingPlan::of_plain(stripes_for(ring.chunk * static_cast<std::size_t>(ring.slots), 1, 6), ring, bytes)
            : CrossingPlan::of_registered(stripes_for(bytes, 1, 6), 0, bytes);
    own().channels.store(index + 1);
    bridge_->announce(index, own().channel[index], plan);
    return plan;
  }

  /// A frame begins, comes and ends: what the bridge says to it.
  Status send(int rank, FrameHeader header, std::span<const std::byte> bytes = {}) {
    header.bytes = static_cast<std::uint32_t>(bytes.size());
    auto place = begin(rank, header);
    if (!place.ok()) return place.error();
    if (!place.value() && !bytes.empty()) return {};  // dropped
    if (!bytes.empty()) std::memcpy(place.value(), bytes.data(), bytes.size());
    return bridge_->on_frame(kId + static_cast<std::uint64_t>(rank), header, place.value());
  }
  Result<std::byte*> begin(int rank, const FrameHeader& header) {
    return bridge_->place_for(kId + static_cast<std::uint64_t>(rank), header, lane_buffer_);
  }
  Status announce(int rank, std::uint32_t index, const Channel& channel) {
    auto frame = frame_of(kAnnounce);
    frame.index = index;
    return send(rank, frame, std::as_bytes(std::span(reinterpret_cast<const char*>(&channel), kDescription)));
  }
  static FrameHeader frame_of(FrameKind kind) {
    FrameHeader header;
    header.kind = kind;
    header.view = kView;
    return header;
  }

 private:
  /// Pages that nobody touches do not exist: fuzzers make many of these.
  static net::Mapping sparse_control() {
    void* at = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    PLIANT_ASSERT(at != MAP_FAILED);
    return {at, sizeof(Control)};
  }

  Team team_;
  Topology topology_;
  net::Mapping own_ = sparse_control();
  Streams streams_{[](std::uint64_t, const std::string&) {}};
  std::vector<std::byte> lane_buffer_;
  bool over_ = false;
  int nudges_ = 0;
  std::unique_ptr<Bridge> bridge_;  // last: its end is the first
};

}  // namespace pliant::collective
