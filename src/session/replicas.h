// Shared state: copied from rank 0 at the start, averaged where it must be, and watched by digests.
#pragma once

#include <pliant/pliant.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/group.h"
#include "step/reduction.h"

namespace pliant::session {

class Replicas {
 public:
  /// All of the state is covered by the digests of this many steps.
  static constexpr std::uint64_t kStripes = 64;

  void add(const std::string& name, StatePtr state);
  bool empty() const { return states_.empty(); }
  /// All items, named "<state>/<item>".
  std::vector<StateItem> items() const;

  /// Hash of what a model is: everything but what comes into being while it is trained.
  std::uint64_t layout() const;
  /// The same in words: "8 items of 1.6 MiB (0123456789abcdef)".
  std::string describe() const;
  /// Lets every state bring into being what `like` (items of another worker, or of a checkpoint) names.
  void bring_into_being(const std::vector<StateItem>& like);
  /// The same with the items of another worker. Code::mismatch, naming the first difference, if they are not the same
  /// afterwards.
  Status prepare(const std::vector<StateItem>& like);
  /// Copies the state that all of `givers` (ranks, ascending) have to those who `receive`. Everybody takes part. On one
  /// host each giver lays out its part of it; between hosts the first one gives all.
  Status copy_from(collective::Group& group, const std::vector<int>& givers, bool receive);

  /// Starts to average what has Role::average and to take the maximum of counters, weighted by `samples`.
  void begin_averaging(step::Reducer& reducer, double samples);
  /// Writes the results back, once the step is closed.
  void finish_averaging();

  /// The digest of stripe `step % kStripes` of the state as it is now; of all of it if that is little.
  std::uint64_t stripe_digest(std::uint64_t step) const;
  /// The digest of everything.
  std::uint64_t digest() const;

 private:
  /// Items of one type and one operation, packed into one registered region.
  struct Pack {
    std::vector<StateItem> items;
    step::StableRegionPtr memory;
    std::size_t count = 0;
    step::StepReductionPtr reduction;
  };
  Status copy_on_host(collective::Group& group, const std::vector<int>& givers, bool receive);
  Status copy_between_hosts(collective::Group& group, int from, bool receive);
  void repack(step::Reducer& reducer, const std::vector<StateItem>& items);

  std::vector<std::pair<std::string, StatePtr>> states_;
  std::vector<Pack> packs_;
  std::uint64_t packed_layout_ = 0;  // hash of what packs_ were made for
};

}  // namespace pliant::session
