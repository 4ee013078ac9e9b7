// The summary: the few control words that close every step's reduction. Each worker writes one row; all read all of
// them and fold them in rank order, so that everybody comes to the same conclusion.
#pragma once

#include <pliant/policy.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "membership/settle.h"
#include "step/ledger.h"

namespace pliant::step {

inline constexpr std::size_t kMaxLogs = 24;
inline constexpr std::size_t kMaxPolicies = 8;
inline constexpr std::size_t kLongestFailure = 120;
inline constexpr std::size_t kAllFailures = 240;  ///< of a row, which has to fit into what a group exchanges

struct LogEntry {
  std::string name;
  double value = 0;
  double weight = 0;
};

/// What a policy of this worker says: equal hashes are equal wishes, 0 is none.
struct PolicyWord {
  std::uint64_t hash = 0;
  std::string failure;  ///< why it has to go; empty: it may stay
};

struct SummaryRow {
  std::uint64_t step = 0;
  std::uint64_t view_hash = 0;
  std::uint64_t plan_hash = 0;     ///< of the newest plan that this member holds; 0: none
  std::uint64_t leaves = 0;        ///< a membership::Leaving
  std::uint64_t delivered = 0;     ///< 1: results of this step with everybody's samples were used already
  std::uint64_t samples = 0;       ///< contributed to this step
  std::uint64_t state_digest = 0;  ///< of the stripe of state that is due, after the previous step
  std::uint64_t state_stripe = 0;
  std::uint64_t deal_digest = 0;  ///< of what decides who takes which samples from here on
  std::uint64_t skipped = 0;      ///< steps skipped so far because of non-finite gradients
  std::uint64_t share = 0;        ///< of the batch that it wants, relative to the others
  StepTimes times;                ///< of this worker's previous step
  double speed = 0;               ///< in it: samples per second of computing; 0: there was none
  /// Whose samples these are, by rank when the step began: its own, and those of the dead that it speaks for.
  std::vector<std::uint64_t> slots;
  std::vector<LogEntry> logs;  ///< of the previous step
  std::vector<PolicyWord> policies;
};

std::string encode(const SummaryRow& row);
Result<SummaryRow> decode_summary(std::string_view bytes);

/// What all rows say together.
struct Summary {
  std::uint64_t samples = 0;
  std::vector<std::uint64_t> slots;           ///< whose samples count, ascending
  std::vector<int> speakers;                  ///< of the slots: the rank whose row names it
  bool delivered = false;                     ///< then everybody's do
  std::vector<membership::Outlook> outlooks;  ///< by rank
  Shares shares;                              ///< by rank
  std::map<std::string, double> averages;
  int contributors = 0;               ///< whose gradients count: those with samples
  StepTimes times;                    ///< of the previous step, the mean over workers
  std::vector<double> speeds;         ///< in it, by rank
  std::vector<std::string> policies;  ///< by policy: why it has to go, on all workers; empty: all say the same
};
/// `row` speaks for a dead worker too, whose own row is `dead`.
void speak_for(SummaryRow& row, const SummaryRow& dead);

/// Folds rows in rank order. Code::diverged if digests differ (named from three workers on), Code::mismatch if steps
/// do.
Result<Summary> fold(const std::vector<SummaryRow>& rows);

/// Who deviates: "rank 2 deviates from ranks 0, 1", or that two differ; empty if all are equal.
std::string deviants(const std::vector<std::uint64_t>& digests);

}  // namespace pliant::step
