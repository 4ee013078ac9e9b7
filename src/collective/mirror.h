// What one rank on another host has published, as far as its words have come: a control segment in this rank's memory.
// So everything that compares, counts or waits is the same for all ranks.
//
// The words are not believed. Each must be one that the engine of the other rank can have sent, given what came before
// it and what this rank itself has published; docs/bytes.md lists the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "collective/control.h"
#include "collective/crossing_plan.h"
#include "collective/streams.h"
#include "net/shared_memory.h"

namespace pliant::collective {

/// Of frames that name a view.
enum FrameKind : std::uint16_t { kPartial = 1, kFinal, kAnnounce, kProgress, kRow, kState };

enum class Counter : std::uint8_t { submitted, reduced, copied };
inline constexpr int kCounters = 3;

/// What of a channel is written once.
inline constexpr std::size_t kDescription = offsetof(Channel, submitted);
/// The longest words: a row.
inline constexpr std::size_t kMostWords = kRowBytes;
static_assert(kDescription <= kMostWords && sizeof(Control::complaint) <= kMostWords);

class Mirror {
 public:
  /// `own` is this rank's control segment, `channels` what it has described; both outlive the mirror.
  Mirror(std::uint64_t view_hash, int rank, int ranks, const Control& own, const OwnChannels& channels);

  /// May be read from any thread, as other ranks' segments are.
  const Control& control() const { return *words(); }
  /// Words of this rank have come. An error says which rule they break; then they do not count. One call at a time.
  Status take(const FrameHeader& header, const std::byte* bytes);

 private:
  Control* words() const { return reinterpret_cast<Control*>(memory_.data()); }
  Status announce(const FrameHeader& header, const std::byte* bytes);
  Status check(const Channel& channel) const;
  Status progress(const FrameHeader& header);
  Status check_reduced(std::uint32_t index, std::uint64_t value);
  Status row(const FrameHeader& header, const std::byte* bytes);
  Status state(const FrameHeader& header, const std::byte* bytes);

  const int ranks_;
  const Control& own_;
  const OwnChannels& channels_;
  net::Mapping memory_;
  std::unordered_map<std::string, std::uint64_t> first_uses_;  // of the newest channel of each name
  std::vector<const OwnChannels::Entry*> counterparts_;        // by index of its channel; nullptr: not known yet
};

}  // namespace pliant::collective
