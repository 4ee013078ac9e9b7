// A view: an immutable membership. Every connection, segment and collective belongs to exactly one.
#pragma once

#include <cstdint>
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
  std::vector<wire::Member> members;  ///< in rank order

  int size() const { return static_cast<int>(members.size()); }
  /// The rank of a member, or -1.
  int rank_of(std::uint64_t id) const;
  /// Covers everything above; two views with one hash are the same view.
  std::uint64_t hash() const;
};

/// Checks what a stranger could have written: ids unique, at least one member, epoch not zero.
Result<View> view_from(const wire::ViewNotice& notice);
wire::ViewNotice notice_of(const View& view);

}  // namespace pliant::membership
