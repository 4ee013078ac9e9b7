// What the coordinator has said last of a job, and what whoever runs the job makes of it: its pace and its ledger.
// Pure: no clock, no socket.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/pliant/account.h"
#include "apps/pliant/status_line.h"
#include "base/clock.h"
#include "wire/messages.h"

namespace pliant::cli {

/// What a state says that the one before did not.
enum class StateNews {
  nothing,
  first,  ///< there is a view: the job has begun
  newer,  ///< there is another view
  again,  ///< ... in which the job begins again from a checkpoint
};

class JobNews {
 public:
  /// `price` is that of the job's plan.
  JobNews(std::uint32_t wanted, const std::string& price);

  StateNews on_state(Nanos now, const wire::JobState& state);
  void on_progress(Nanos now, const wire::Progress& progress);
  void on_over(const wire::Over& over) { over_ = over; }
  /// Somebody trains in a view that the coordinator had not heard of when it said that the job was over.
  void take_back_over() { over_.reset(); }

  const wire::JobState& state() const { return state_; }
  /// There was a view: how the job ends is not a matter of exit codes alone.
  bool has_begun() const { return state_.view.epoch > 0; }
  bool in_view(std::uint64_t id) const;
  bool is_over() const { return over_.has_value(); }
  /// How the job ended by the coordinator's word; `unsaid` if it has not said so.
  Outcome outcome_or(Outcome unsaid) const { return over_ ? wire::outcome_in(over_->outcome) : unsaid; }
  /// Why the job has failed, for people; empty if the coordinator gave no reason.
  std::string reason() const;
  Account& account() { return account_; }
  const Account& account() const { return account_; }

  /// What of a snapshot is known from here. `runs`: steps are made, so that it makes sense to say how long it takes.
  void describe(Snapshot& snapshot, Nanos now, bool runs) const;

 private:
  wire::JobState state_;
  std::optional<wire::Over> over_;
  std::optional<wire::Progress> progress_;
  Pace pace_;
  Account account_;
};

}  // namespace pliant::cli
