// A view: an immutable membership. Every connection, segment and collective belongs to exactly one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/messages.h"

namespace pliant::membership {

struct View {
  std::uint64_t term = 0;
  std::uint64_t epoch = 0;
  std::uint64_t seed = 0;  ///< the job's seed; all of it must agree on every member
  /// The epoch of the newest planned change that led here: a view that follows a loss keeps its predecessor's.
  std::uint64_t planned = 0;
  std::vector<wire::Member> members;       ///< in rank order
  std::vector<std::uint64_t> newcomers{};  ///< members that have no vote yet, ascending; a vote comes with the state
  /// How often the job has begun again from a checkpoint, because all who held its state were gone, and the step of the
  /// last one. If no member of such a view has state, rank 0 loads that checkpoint: they never begin anew.
  std::uint32_t restarts = 0;
  std::uint64_t resume_step = 0;

  int size() const { return static_cast<int>(members.size()); }
  /// The rank of a member, or -1.
  int rank_of(std::uint64_t id) const;
  /// Has a say in what follows this view.
  bool votes(std::uint64_t id) const;
  /// The view without those members.
  void remove(const std::function<bool(const wire::Member& member)>& goes);
  /// Covers everything above; two views with one hash are the same view.
  std::uint64_t hash() const;
  /// Covers number and members: the same for all views in force that have one epoch, under whichever term.
  std::uint64_t members_hash() const;
};

/// Checks what a stranger could have written: ids unique, at least one member that votes, epoch not zero.
Result<View> view_from(const wire::ViewNotice& notice);
wire::ViewNotice notice_of(const View& view);

}  // namespace pliant::membership
