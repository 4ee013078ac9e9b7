// What the coordinator has said last of a job: the view, and how it ended. Pure: no clock, no socket.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "wire/messages.h"

namespace pliant::agent {

/// What a state says that the one before did not.
enum class StateNews {
  nothing,
  first,  ///< there is a view: the job has begun
  newer,  ///< there is another view
  again,  ///< ... in which the job begins again from a checkpoint
};

class JobWord {
 public:
  /// Before the coordinator has said anything, `wanted` workers are.
  explicit JobWord(std::uint32_t wanted) { state_.wanted = wanted; }

  StateNews on_state(const wire::JobState& state) {
    auto before = std::exchange(state_, state).view;
    if (std::pair(state.view.epoch, state.view.term) <= std::pair(before.epoch, before.term)) {
      state_.view = std::move(before);  // another coordinator may have to learn first what is known here
      return StateNews::nothing;
    }
    if (before.epoch == 0) return state.view.epoch > 0 ? StateNews::first : StateNews::nothing;
    return state.view.restarts > before.restarts ? StateNews::again : StateNews::newer;
  }
  void on_over(const wire::Over& over) { over_ = over; }
  /// Somebody trains in a view that the coordinator had not heard of when it said that the job was over.
  void take_back_over() { over_.reset(); }

  const wire::JobState& state() const { return state_; }
  /// There was a view: how the job ends is not a matter of exit codes alone.
  bool has_begun() const { return state_.view.epoch > 0; }
  bool in_view(std::uint64_t id) const {
    return std::ranges::any_of(state_.view.members, [&](const auto& member) { return member.id == id; });
  }
  bool is_over() const { return over_.has_value(); }
  /// How the job ended by the coordinator's word; `unsaid` if it has not said so.
  Outcome outcome_or(Outcome unsaid) const { return over_ ? wire::outcome_in(over_->outcome) : unsaid; }
  /// The same for a job that was told to stop. The coordinator, which was told as well, may have seen before that it
  /// was finished, or had failed; one that had not begun has not failed by that.
  Outcome outcome_of_a_stop() const {
    auto said = outcome_or(Outcome::stopped);
    return said == Outcome::failed && !has_begun() ? Outcome::stopped : said;
  }
  /// Why the job has failed, for people; empty if the coordinator gave no reason.
  std::string reason() const { return over_ ? printable(over_->reason) : std::string(); }

 private:
  wire::JobState state_;
  std::optional<wire::Over> over_;
};

}  // namespace pliant::agent
