// What the members of a view tell each other first: where each stands, and what it lacks of the view before.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "membership/settle.h"

namespace pliant::step {

/// A member's first words in a view.
struct EntryReport {
  membership::Report report;
  std::uint64_t loop = 0;        ///< JobState::loop
  std::uint64_t resumes_in = 0;  ///< it is blank, and has a checkpoint that was made in this loop; 0: it has none
  std::string words;             ///< what it shares, for people
  /// What it waits for outside of a step's reduction and has not complete (StepReduction's numbers). Others may have
  /// acted on it only if nobody lacks it.
  std::vector<std::uint64_t> missing;
};
/// As rows of a collective, as many as it takes: there is no limit to what may be in flight when a view ends.
std::vector<std::string> encode(const EntryReport& entry);
/// How many rows a member needs, by its first one.
Result<std::size_t> rows_of_entry(std::string_view first);
/// REQUIRES: `rows` are as many as rows_of_entry() says; what follows them is not looked at.
Result<EntryReport> decode_entry(const std::vector<std::string>& rows);
/// Everybody's first words, in rank order. `exchange` gives everybody's row for one's own, as collective::Group does;
/// all members call it equally often.
using ExchangeRows = std::function<Result<std::vector<std::string>>(std::string_view row)>;
Result<std::vector<EntryReport>> exchange_entries(const EntryReport& own, const ExchangeRows& exchange);

}  // namespace pliant::step
