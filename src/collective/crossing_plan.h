// What of a channel crosses between hosts: which pieces there are, how large they are and who carries them. All ranks
// work it out from the same description, so whoever receives a piece knows beforehand what it must look like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "collective/control.h"
#include "collective/plan.h"

namespace pliant::collective {

/// A part of a stripe that travels as one frame.
struct LegPlace {
  std::uint32_t number = 0;  ///< the page of the region that it begins in
  std::size_t stripe = 0;
  Piece piece;
  bool operator==(const LegPlace&) const = default;
};

/// Chunks are counted from the channel's first use.
struct CrossingPlan {
  Stripes stripes;
  Piece whole{};  ///< registered memory: what is reduced of the region
  Ring ring{};    ///< plain memory; without slots: the memory is registered
  std::size_t bytes = 0;

  static CrossingPlan of_registered(const Stripes& stripes, std::size_t offset, std::size_t bytes) {
    return {stripes, {offset, offset + bytes}, {}, bytes};
  }
  static CrossingPlan of_plain(const Stripes& stripes, const Ring& ring, std::size_t bytes) {
    return {stripes, {}, ring, bytes};
  }

  /// Chunk g crosses once everybody has reduced all chunks below g + 1 - ahead(). So nobody receives a chunk whose
  /// number is not below its own count of reduced ones plus this, and nobody has to keep more than so many.
  std::uint64_t ahead() const { return ring.slots > 0 ? static_cast<std::uint64_t>(ring.slots) : 1; }
  /// Where a chunk lies in the region.
  Piece part(std::uint64_t chunk) const;
  /// What the rank at `place` of its host carries of a chunk, ascending.
  std::vector<LegPlace> legs_of(int place, std::uint64_t chunk) const;
  /// The leg of a chunk with this number, whoever carries it; nothing if there is none.
  std::optional<LegPlace> leg_at(std::uint64_t chunk, std::uint32_t number) const;
};

/// The channels that this rank has described to other hosts. Threads: any.
class OwnChannels {
 public:
  /// `channel` lies in this rank's control segment.
  struct Entry {
    const Channel* channel = nullptr;
    CrossingPlan plan;
  };
  /// In the order of the control segment. An entry stays where it is.
  void add(const Channel& channel, const CrossingPlan& plan);
  std::size_t size() const;
  /// nullptr: there is none with this index.
  const Entry* at(std::uint64_t index) const;
  /// The one that a peer's channel stands for, if this rank has described it.
  const Entry* counterpart(const Channel& theirs) const;

 private:
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;                                           // guarded by mutex_
  std::unordered_map<std::string, std::vector<const Entry*>> by_name_;  // guarded by mutex_
};

}  // namespace pliant::collective
