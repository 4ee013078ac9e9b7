// The other hosts, as a group sees them: mirrors of what their ranks publish, and stripes on their way.
//
// On its own host a rank reads its neighbours' control words and memory. Of ranks on other hosts it has mirrors, which
// their words fill as they come (mirror.h).
//
// A reduction between hosts: every host reduces what its own ranks gave; for each stripe of the result one rank per
// host is its carrier, and one host finalises it. The carriers of the other hosts send theirs there (*partial*), the
// finalising carrier reduces them all, in the order of hosts, and sends the result back to each (*final*). So every
// host sends and receives 2 (h-1)/h of the bytes, which is the least possible.
//
// Peers are not believed. A chunk crosses when all ranks have described its channel and have reduced what came so many
// chunks before (crossing_plan.h), so a frame names the channel as its receiver knows it, and the receiver knows
// beforehand who may send it which piece, of which size, and keeps at most CrossingPlan::ahead() chunks of each of its
// own channels for peers that are ahead. Whatever else comes breaks a rule, and so does a piece that comes twice. After
// the view's end such frames are dropped without a word: connections may have been made anew since, and what an honest
// peer says on them does not follow from what came before.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "collective/control.h"
#include "collective/crossing_plan.h"
#include "collective/group.h"
#include "collective/mirror.h"
#include "collective/plan.h"
#include "collective/streams.h"

namespace pliant::collective {

/// A chunk of one of this rank's channels.
struct CrossingKey {
  std::uint32_t channel = 0;  ///< its index in this rank's control segment
  std::uint64_t chunk = 0;    ///< since the channel's first use
  bool operator<(const CrossingKey& other) const {
    return std::tie(channel, chunk) < std::tie(other.channel, other.chunk);
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
  LegPlace at;
  bool final_here = false;
  bool done = false;
  std::vector<Partial> partials;  ///< of the other hosts
};

/// A leg whose result comes from another host.
struct ExpectedFinal {
  Piece piece;
  int from = 0;        ///< rank
  bool begun = false;  ///< it is being received
};

/// The stripes of one chunk that this rank carries. The engine's, except what is guarded by `mutex`.
struct Crossing {
  CrossingKey key;
  std::vector<Leg> legs;                  ///< ascending by number
  std::span<const Channel* const> peers;  ///< the channel of each rank, in its control segment or mirror
  const std::byte* given = nullptr;       ///< what this host's ranks gave, where `result` has what all gave
  double own_weight = 0;
  std::size_t own_contributors = 0;

  using Sender = std::pair<int, std::uint32_t>;  ///< rank, and number of the leg
  std::mutex mutex;
  std::byte* result = nullptr;                      ///< guarded by mutex; nullptr until it is opened
  std::shared_ptr<const void> keep;                 ///< guarded by mutex
  std::map<std::uint32_t, ExpectedFinal> expected;  ///< guarded by mutex; by leg
  std::map<Sender, Partial> begun;                  ///< guarded by mutex; being received
  std::set<Sender> senders;                         ///< guarded by mutex; of partials, begun or complete
  std::vector<Partial> arrived;                     ///< guarded by mutex; not looked at yet
  std::map<std::uint32_t, int> complete;            ///< guarded by mutex; partials by leg
};
using CrossingPtr = std::shared_ptr<Crossing>;  // shared: by the engine and the streams' thread

/// Called on any thread.
struct BridgeEvents {
  std::function<void()> nudge;    ///< something has come that somebody may wait for
  std::function<bool()> is_over;  ///< has the view ended here?
};

class Bridge final : public FrameSink {
 public:
  /// `own` is this rank's control segment. All of it outlives the bridge.
  Bridge(const Team& team, const Topology& topology, Streams& streams, const Control& own, BridgeEvents events);
  ~Bridge() override;
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  const Control* mirror(int rank) const;

  // What this rank publishes, for the other hosts. From any thread; counters must not go back.
  // Channels are announced one by one, in the order of the control segment.
  void announce(std::uint32_t index, const Channel& channel, const CrossingPlan& plan);
  void publish(std::uint32_t index, Counter counter, std::uint64_t value, int slot, double number, double spread);
  void publish_row(std::uint64_t number, std::string_view row);
  void publish_state(const Control& own);

  /// What a rank gives to a crossing, and where it will find the result.
  struct Given {
    const std::byte* bytes = nullptr;  ///< what this host's ranks gave
    std::byte* result = nullptr;       ///< will hold what all gave; may be the same
    std::shared_ptr<const void> keep;  ///< both memories
    double weight = 0;                 ///< of this host's ranks
    std::size_t contributors = 0;      ///< of this host's ranks
  };
  /// Begins to carry this rank's legs of a chunk of its channel. Sends the partials; finals are received straight into
  /// the result. REQUIRES: `peers`, which stay, are all known, and all have reduced what came ahead() chunks before.
  CrossingPtr open(const CrossingKey& key, std::span<const Channel* const> peers, Given given);
  /// Moves what has arrived to the legs. True if all finals of other hosts are in.
  bool collect(Crossing& crossing);
  /// A leg is final here: tells the other hosts. What they gave is not needed any more.
  void send_final(const Crossing& crossing, Leg& leg);
  /// REQUIRES: the chunk is published as reduced. From then on nothing of it is accepted, so nothing begins it again.
  void close(const Crossing& crossing);
  /// Chunks that are being carried, or that peers have begun.
  std::size_t crossings() const;

  Result<std::byte*> place_for(std::uint64_t from, const FrameHeader& header,
                               std::vector<std::byte>& lane_buffer) override;
  Status on_frame(std::uint64_t from, const FrameHeader& header, std::byte* bytes) override;

 private:
  int host_of(int rank) const { return topology_.host_of[static_cast<std::size_t>(rank)]; }
  int rank_of(std::uint64_t id) const;
  FrameHeader header(FrameKind kind) const;
  void say(FrameHeader header, std::span<const std::byte> bytes = {});
  void send_leg(const Crossing& crossing, const Leg& leg, FrameKind kind, int host, std::span<const std::byte> bytes);
  std::unique_ptr<std::byte[]> take_buffer();
  CrossingPtr crossing_of(const CrossingKey& key, bool make);
  Result<std::byte*> place_of(std::uint64_t from, const FrameHeader& header, std::vector<std::byte>& lane_buffer);
  Result<LegPlace> leg_of(int rank, const FrameHeader& header) const;
  Result<std::byte*> place_for_partial(int rank, const FrameHeader& header);
  Result<std::byte*> place_for_final(int rank, const FrameHeader& header);
  void on_partial(int rank, const FrameHeader& header);
  void on_final(const FrameHeader& header);

  const Team& team_;
  const Topology& topology_;
  Streams& streams_;
  const BridgeEvents events_;
  const int host_;
  OwnChannels channels_;
  std::vector<std::unique_ptr<Mirror>> mirrors_;  // by rank; nullptr for ranks of this host
  std::vector<std::uint64_t> elsewhere_;          // ids of the ranks on other hosts
  mutable std::mutex mutex_;
  std::map<CrossingKey, CrossingPtr> crossings_;       // guarded by mutex_
  std::vector<std::unique_ptr<std::byte[]>> buffers_;  // guarded by mutex_; of the largest stripe's size, unused
};

}  // namespace pliant::collective
