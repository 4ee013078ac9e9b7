// What members tell each other when they enter a view together, and what a newcomer is given.
#pragma once

#include <pliant/pliant.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "membership/settle.h"
#include "session/ledger.h"

namespace pliant::session {

/// A member's first words in a view.
struct Arrival {
  membership::Report report;
  std::string words;  ///< what it shares, for people
  /// What it waits for outside of a step's reduction and has not complete (Ticket's numbers). Others may have acted on
  /// it only if nobody lacks it.
  std::vector<std::uint64_t> missing;
};
std::string encode(const Arrival& arrival);
Result<Arrival> decode_arrival(std::string_view bytes);

/// Whose samples are dealt out in a step, and how many each gets.
struct Deal {
  membership::View to;
  Shares shares;  ///< by rank
  int size() const { return to.size(); }
  /// Everybody gets as much as the others.
  static Deal even(membership::View to);
  /// Among the members of `next`: who was there before keeps its share.
  Deal among(membership::View next) const;
};

/// Everything about a job that is not in its tensors.
struct Luggage {
  std::uint64_t step = 0;
  std::uint64_t samples = 0;  ///< seen so far
  std::uint64_t skipped = 0;
  std::uint64_t lineage = 0;
  std::uint64_t seed = 0;
  BatchPlan batch;
  StepsOptions steps;
  Deal deal;  ///< in the next step
  std::optional<Ledger> ledger;
  std::string adaptation;        ///< monitors and policies
  std::vector<StateItem> items;  ///< names, types, counts and roles, without data
};
std::string encode(const Luggage& luggage);
/// Bounded by what the bytes hold.
Result<Luggage> decode_luggage(std::string_view bytes);

}  // namespace pliant::session
