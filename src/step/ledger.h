// Who takes which samples: a pure function of (seed, epoch, ledger, batch, members). Nobody is asked for samples.
//
// An epoch visits every sample once, in a shuffled order that each member computes alone. The ledger says how much
// of that order is used up and which ranges were handed back; it is replicated state, equal on all members.
#pragma once

#include <cstdint>
#include <vector>

#include "base/range.h"
#include "base/result.h"

namespace pliant::step {

/// The shuffled order of an epoch: a bijection of [0, count) chosen by (seed, epoch), computed per position in O(1)
/// time and memory. With `shuffle` false it is the identity.
class Order {
 public:
  Order(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch, bool shuffle = true);
  std::uint64_t count() const { return count_; }
  /// The sample at a position. REQUIRES position < count().
  std::uint64_t at(std::uint64_t position) const;

 private:
  std::uint64_t count_;
  std::uint64_t key_;
  int half_bits_;  // the Feistel network works on 2 * half_bits_ bits
  bool shuffle_;
};

class Ledger {
 public:
  /// All of a ledger as plain values, for checkpoints and newcomers.
  struct Snapshot {
    std::uint64_t samples = 0;
    std::uint64_t epoch = 0;
    std::uint64_t fresh = 0;
    std::vector<Range> returned;
    bool operator==(const Snapshot&) const = default;
  };

  explicit Ledger(std::uint64_t samples) : samples_(samples) {}
  /// The ledger that the snapshot was taken of. Code::invalid for one that no ledger can have given.
  static Result<Ledger> restore(Snapshot snapshot);
  Snapshot snapshot() const { return {samples_, epoch_, fresh_, returned_}; }

  std::uint64_t samples() const { return samples_; }
  std::uint64_t epoch() const { return epoch_; }
  /// Positions of this epoch that no committed step has used.
  std::uint64_t left() const;

  /// The ranges of the next global batch of at most `batch` positions: returned ranges first, in order, then fresh
  /// ones. Shorter at the epoch's end, never crossing into the next. Does not change the ledger.
  std::vector<Range> next(std::uint64_t batch) const;
  /// The step that leased `next(batch)` committed without `unused`, which are parts of that: the rest is consumed, and
  /// `unused` comes back, to be leased again in the same epoch. Begins the next epoch when nothing is left.
  void commit(std::uint64_t batch, std::vector<Range> unused = {});

  /// What commit() does with `unused`. REQUIRES: below the fresh position, disjoint from each other and from what is
  /// already returned.
  void give_back(std::vector<Range> ranges);

  /// Of all of it.
  std::uint64_t digest() const;

  bool operator==(const Ledger&) const = default;

 private:
  std::uint64_t samples_;
  std::uint64_t epoch_ = 0;
  std::uint64_t fresh_ = 0;      // positions from here on were never leased in this epoch
  std::vector<Range> returned_;  // sorted, disjoint, merged, all below fresh_
};

/// How much of a batch each member takes, relative to the others, by rank. If all are 0, all are equal.
using Shares = std::vector<std::uint32_t>;
inline constexpr std::uint32_t kUsualShare = 1000;

/// Sizes of the members' parts of a batch of `total`: by share, rounded down; what is then left goes, one each, to
/// those who lost most by that, of equals to the lowest ranks.
std::vector<std::uint64_t> part_sizes(std::uint64_t total, const Shares& shares);
/// The part of `batch` (the result of Ledger::next) that belongs to `rank`: parts are disjoint, in rank order, and
/// together are the batch. May be empty.
std::vector<Range> part_of(const std::vector<Range>& batch, const Shares& shares, int rank);

}  // namespace pliant::step
