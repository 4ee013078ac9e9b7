#include "step/job_state.h"

#include <algorithm>

#include "base/hash.h"

namespace pliant::step {

LeaseAssignment LeaseAssignment::even(membership::View to) {
  Shares shares(to.members.size(), kUsualShare);
  return {std::move(to), std::move(shares)};
}

LeaseAssignment LeaseAssignment::among(membership::View next) const {
  auto assignment = even(std::move(next));
  for (std::size_t rank = 0; rank < assignment.shares.size(); ++rank)
    if (int before = to.rank_of(assignment.to.members[rank].id); before >= 0)
      assignment.shares[rank] = shares[static_cast<std::size_t>(before)];
  return assignment;
}

double JobState::epoch_used() const {
  return ledger ? 1 - static_cast<double>(ledger->left()) / static_cast<double>(ledger->samples()) : 0;
}

double JobState::progress() const {
  auto by_steps = until.steps ? static_cast<double>(step) / static_cast<double>(until.steps) : 0;
  if (!until.epochs) return by_steps;
  return std::max(by_steps, (static_cast<double>(epoch()) + epoch_used()) / static_cast<double>(until.epochs));
}

bool JobState::complete() const {
  return (until.steps && step >= until.steps) || (until.epochs && epoch() >= until.epochs);
}

std::uint64_t JobState::global_batch(int workers) const {
  if (batch.global) return batch.global;
  auto all = batch.local * static_cast<std::uint64_t>(workers);
  return batch.limit ? std::min(all, batch.limit) : all;
}

std::uint64_t JobState::digest() const {
  return combine(combine(combine(hash_name("position"), step), seed), ledger ? ledger->digest() : 0);
}

}  // namespace pliant::step
