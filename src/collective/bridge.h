// The other hosts, as a group sees them: mirrors of what their ranks publish, and stripes on their way.
//
// On its own host a rank reads its neighbours' control words and memory. Of ranks on other hosts it has a mirror: a
// control segment in its own memory, which their words fill as they come. So everything that compares, counts or
// waits is the same for all ranks.
//
// A reduction between hosts: every host reduces what its own ranks gave; for each stripe of the result one rank per
// host is its carrier, and one host finalises it. The carriers of the other hosts send theirs there (*partial*), the
// finalising carrier reduces them all, in the order of hosts, and sends the result back to each (*final*). So every
// host sends and receives 2 (h-1)/h of the bytes, which is the least possible.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <tuple>
#include <vector>

#include "collective/control.h"
#include "collective/group.h"
#include "collective/plan.h"
#include "collective/streams.h"
#include "net/shared_memory.h"

namespace pliant::collective {

/// One chunk of one use of a name.
struct CrossingKey {
  std::uint64_t name = 0;  ///< hash
  std::uint64_t use = 0;
  std::uint64_t chunk = 0;
  bool operator<(const CrossingKey& other) const {
    return std::tie(name, use, chunk) < std::tie(other.name, other.use, other.chunk);
  }
};

/// What a host has contributed to a leg.
struct Partial {
  int host = 0;
  std::uint32_t leg = 0;  ///< its number
  double weight = 0;      ///< of all its ranks
  std::size_t contributors = 0;
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size = 0;  ///< 0 if there are none
};

/// A stripe that this rank carries, or a part of it: what a reduction covers, and what fits into a frame.
struct Leg {
  std::uint32_t number = 0;  ///< the page of the region that it begins in
  std::size_t stripe = 0;
  Piece piece;
  bool final_here = false;
  bool done = false;
  std::vector<Partial> partials;  ///< of the other hosts
};

/// The stripes of one chunk that this rank carries. The engine's, except what is guarded by `mutex`.
struct Crossing {
  CrossingKey key;
  std::vector<Leg> legs;             ///< ascending by number
  const std::byte* given = nullptr;  ///< what this host's ranks gave, where `result` has what all gave
  double own_weight = 0;
  std::size_t own_contributors = 0;

  std::mutex mutex;
  std::byte* result = nullptr;                                       ///< guarded by mutex; nullptr until it is opened
  std::shared_ptr<const void> keep;                                  ///< guarded by mutex
  std::map<std::uint32_t, Piece> expected;                           ///< guarded by mutex; finals by leg
  std::map<std::pair<std::uint64_t, std::uint32_t>, Partial> begun;  ///< guarded by mutex; by sender and leg
  std::vector<Partial> arrived;                                      ///< guarded by mutex; not looked at yet
  std::map<std::uint32_t, int> complete;                             ///< guarded by mutex; partials by leg
};
using CrossingPtr = std::shared_ptr<Crossing>;  // shared: by the engine and the streams' thread

enum class Counter : std::uint8_t { submitted, reduced, copied };

class Bridge final : public FrameSink {
 public:
  /// `nudge` is called when something has come that somebody may wait for.
  Bridge(const Team& team, const Topology& topology, Streams& streams, std::function<void()> nudge);
  ~Bridge() override;
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  const Control* mirror(int rank) const;

  // What this rank publishes, for the other hosts. From any thread; counters must not go back.
  void announce(std::uint32_t index, const Channel& channel);
  void publish(std::uint32_t index, Counter counter, std::uint64_t value, int slot, double number, double spread);
  void publish_row(std::uint64_t number, std::string_view row);
  void publish_state(const Control& own);

  /// Begins to carry `legs` of a chunk: `given` holds what this host's ranks gave, `result`, which may be the same,
  /// will hold what all gave. Sends the partials; finals are received straight into `result`.
  CrossingPtr open(const CrossingKey& key, std::vector<Leg> legs, const std::byte* given, std::byte* result,
                   std::shared_ptr<const void> keep, double weight, std::size_t contributors);
  /// Moves what has arrived to the legs. True if all finals of other hosts are in.
  bool collect(Crossing& crossing);
  /// A leg is final here: tells the other hosts. What they gave is not needed any more.
  void send_final(const Crossing& crossing, Leg& leg);
  void close(const Crossing& crossing);

  std::byte* place_for(std::uint64_t from, const FrameHeader& header) override;
  void on_frame(std::uint64_t from, const FrameHeader& header, std::byte* bytes) override;

 private:
  enum Kind : std::uint16_t { kPartial = 1, kFinal, kAnnounce, kProgress, kRow, kState };
  static constexpr std::size_t kScratch = 8192;

  int rank_of(std::uint64_t id) const;
  FrameHeader header(Kind kind) const;
  void say(FrameHeader header, std::span<const std::byte> bytes = {});
  void send_leg(const Crossing& crossing, const Leg& leg, Kind kind, int host, std::span<const std::byte> bytes);
  std::unique_ptr<std::byte[]> take_buffer();
  CrossingPtr crossing_of(const CrossingKey& key, bool make);
  std::byte* place_for_partial(int rank, std::uint64_t from, const FrameHeader& header);
  std::byte* place_for_final(const FrameHeader& header);
  void on_partial(std::uint64_t from, const FrameHeader& header);
  void on_final(const FrameHeader& header);
  void on_words(int rank, const FrameHeader& header, const std::byte* bytes);

  const Team& team_;
  const Topology& topology_;
  Streams& streams_;
  const std::function<void()> nudge_;
  const int host_;
  std::vector<net::Mapping> mirrors_;     // by rank; empty for ranks of this host
  std::vector<std::uint64_t> elsewhere_;  // ids of the ranks on other hosts
  std::vector<std::byte> scratch_;        // of the streams' thread, for words
  std::mutex mutex_;
  std::map<CrossingKey, CrossingPtr> crossings_;       // guarded by mutex_
  std::vector<std::unique_ptr<std::byte[]>> buffers_;  // guarded by mutex_; of the largest stripe's size, unused
};

}  // namespace pliant::collective
