// Shared state: copied from rank 0 at the start, averaged where it must be, and watched by digests.
#pragma once

#include <pliant/pliant.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/group.h"

namespace pliant::session {

class Replicas {
 public:
  /// All of the state is covered by the digests of this many steps.
  static constexpr std::uint64_t kStripes = 64;

  void add(const std::string& name, StatePtr state);
  bool empty() const { return states_.empty(); }
  /// All items, named "<state>/<item>".
  std::vector<StateItem> items() const;

  /// Checks that all workers share the same things, and copies rank 0's to everybody.
  Status synchronize(collective::Group& group);

  /// Starts to average what has Role::average and to take the maximum of counters, weighted by `samples`.
  Status begin_averaging(collective::Group& group, double samples);
  /// Waits for that and writes the results back.
  Status finish_averaging(collective::Group& group);

  /// The digest of stripe `step % kStripes` of the state as it is now.
  std::uint64_t stripe_digest(std::uint64_t step);
  /// The digest of everything.
  std::uint64_t digest() const;

 private:
  /// Items of one type and one operation, packed into one registered region.
  struct Pack {
    std::vector<StateItem> items;
    std::shared_ptr<collective::Region> region;
    std::string name;
    std::size_t count = 0;
    collective::OperationHandle operation;
  };
  Status repack(collective::Group& group, const std::vector<StateItem>& items);

  std::vector<std::pair<std::string, StatePtr>> states_;
  std::vector<StateItem> watched_;  // what the current round of stripes covers
  std::vector<Pack> packs_;
  std::uint64_t packed_layout_ = 0;  // hash of what packs_ were made for
  int generation_ = 0;
};

}  // namespace pliant::session
