// The control segment: the words that ranks of one host read of each other. Each rank writes its own and maps the
// others' read-only; nothing here is ever written by two processes. docs/bytes.md fixes the layout.
//
// A *channel* is one named reduction with a fixed shape. Its description is written once, before it is counted;
// its progress only grows. Counting is in chunks: a registered reduction is one chunk per use, plain memory passes
// through a ring in several.
#pragma once

#include <pliant/types.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "collective/kernels.h"

namespace pliant::collective {

inline constexpr std::uint64_t kControlMagic = 0x314c525443544c50;  // "PLTCTRL1"
inline constexpr std::size_t kMaxChannelName = 120;
inline constexpr std::size_t kMaxChannels = 8192;
inline constexpr std::size_t kRowBytes = 4032;
inline constexpr std::uint32_t kBlockedOnRows = UINT32_MAX;  ///< of Control::blocked_on: not on a channel, but on rows

enum class Memory : std::uint8_t { registered, plain };

/// What every rank must agree on for a name.
struct ChannelShape {
  std::uint64_t count = 0;   ///< elements
  std::uint64_t offset = 0;  ///< bytes from the start of the region
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  Memory memory = Memory::registered;
  bool operator==(const ChannelShape&) const = default;
};

struct alignas(64) Channel {
  // Written once, before Control::channels counts it.
  std::uint64_t first_use;  ///< uses of this name before this shape
  std::uint64_t chunks;     ///< per use
  ChannelShape shape;
  std::uint8_t name_length;
  char name[kMaxChannelName];
  char region[kMaxChannelName];
  std::uint8_t region_length;
  std::uint64_t region_bytes;  ///< how large that region is: its stripes follow from it

  // Progress in chunks since first_use.
  alignas(64) std::atomic<std::uint64_t> submitted;  ///< input that others may read
  double weight[2];                                  ///< of use u at [u % 2]; published by `submitted`
  alignas(64) std::atomic<std::uint64_t> reduced;    ///< own slices that are final
  Measured measured[2];                              ///< over own slices at [u % 2]; published by `reduced`
  std::atomic<std::uint64_t> copied;                 ///< plain: results that were copied out

  std::string_view name_text() const { return {name, std::min<std::size_t>(name_length, kMaxChannelName)}; }
  std::string_view region_text() const { return {region, std::min<std::size_t>(region_length, kMaxChannelName)}; }
};

struct Control {
  std::uint64_t magic;
  std::uint64_t view_hash;
  std::uint32_t rank;
  std::uint32_t ranks;

  alignas(64) std::atomic<std::uint32_t> bell;      ///< grows with every publication; sleepers wait on it
  alignas(64) std::atomic<std::uint32_t> sleepers;  ///< threads of this rank that sleep on bells
  alignas(64) std::atomic<std::uint32_t> channels;  ///< published entries of `channel`
  /// This rank has ended the view. Set before it says so to anybody: whoever finds everything complete, and then this
  /// word unset on all ranks, knows that all of them find it complete too.
  alignas(64) std::atomic<std::uint32_t> fenced;

  /// What this rank's caller is blocked on: 1 + the channel's index, 0 if nothing; and how often that changed.
  alignas(64) std::atomic<std::uint32_t> blocked_on;
  std::atomic<std::uint32_t> blocked_turns;
  /// Why this rank gave the view up, so that others can say it too although it is gone; published by its length.
  std::atomic<std::uint32_t> complaint_length;
  char complaint[1000];

  alignas(64) std::atomic<std::uint64_t> rows;  ///< rows published; row r is at row[r % 2]
  std::uint32_t row_size[2];
  std::atomic<std::uint64_t> confirmed;  ///< between hosts: how often this rank has said that it has everything
  alignas(64) char row[2][kRowBytes];

  Channel channel[kMaxChannels];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::is_trivially_destructible_v<Control>);

}  // namespace pliant::collective
