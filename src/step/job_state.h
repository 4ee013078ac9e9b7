// Where a job is: what is the same on all workers after each step and decides what comes next, tensors and policies
// apart.
#pragma once

#include <pliant/pliant.h>

#include <cstdint>
#include <optional>

#include "membership/view.h"
#include "step/ledger.h"

namespace pliant::step {

/// Whose samples are leased in a step, and how many each gets.
struct LeaseAssignment {
  membership::View to;
  Shares shares;  ///< by rank
  int size() const { return to.size(); }
  /// Everybody gets as much as the others.
  static LeaseAssignment even(membership::View to);
  /// Among the members of `next`: who was there before keeps its share.
  LeaseAssignment among(membership::View next) const;
};

struct JobState {
  std::uint64_t step = 0;     ///< that comes next, or that is going on
  std::uint64_t samples = 0;  ///< seen so far
  std::uint64_t skipped = 0;  ///< steps that were left out because of non-finite gradients
  std::uint64_t lineage = 0;
  std::uint64_t seed = 0;
  std::uint64_t loop = 0;  ///< which of the program's loops over steps runs, or ran last, from 1; 0: none yet
  BatchPlan batch;
  StepsOptions until;            ///< when the loop ends
  LeaseAssignment assignment;    ///< of the next step: decided by the step before, whoever is lost in between
  std::optional<Ledger> ledger;  ///< of a job with a sampler

  std::uint64_t epoch() const { return ledger ? ledger->epoch() : 0; }
  /// How much of the current epoch's samples is used up, from 0 to 1.
  double epoch_used() const;
  /// From 0 to 1.
  double progress() const;
  /// The loop has made all of its steps.
  bool complete() const;
  /// With so many workers.
  std::uint64_t global_batch(int workers) const;
  /// Of all that decides which samples come next, whoever trains them. Not of the lineage: one that begins from a
  /// checkpoint goes on exactly where the checkpoint was made.
  std::uint64_t digest() const;
};

}  // namespace pliant::step
