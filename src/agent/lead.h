// How a job on several hosts ends for whoever leads to them: what the coordinator says of it, what people ask for, and
// the verdict that follows from both. Pure: no clock, no socket.
//
//   phase     event                                          to
//   running   the job is over                                ending
//   running   too few hosts are left, or there will be no    ending
//             coordinator
//   running   a stop is asked for                            stopping   from here on nothing is a failure, unless
//                                                                       the coordinator had seen one before
//   ending    a view that the coordinator had not known of   running    the job is not over
//             when it said so
//   ending    a stop is asked for by a person                stopping   what has failed has failed
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "agent/deaths.h"
#include "agent/job_word.h"
#include "agent/stop_wish.h"
#include "agent/verdict.h"
#include "base/clock.h"
#include "wire/messages.h"

namespace pliant::agent {

class Lead {
 public:
  enum class Phase { running, ending, stopping };
  explicit Lead(std::uint32_t wanted) : word_(wanted) {}

  /// There is a coordinator, perhaps another one: tell it what is untold.
  void on_connected() {
    wish_.tell_again();
    heard_ = false;
  }
  StateNews on_state(const wire::JobState& state) {
    heard_ = true;
    auto news = word_.on_state(state);
    if (news == StateNews::nothing || !word_.is_over() || phase_ != Phase::ending) return news;
    word_.take_back_over();
    phase_ = Phase::running;
    return news;
  }
  /// Whether it begins to end with that.
  bool on_over(const wire::Over& over) {
    word_.on_over(over);
    if (wire::outcome_in(over.outcome) == Outcome::failed && phase_ != Phase::ending)
      failure_ = over.reason.empty() ? "no worker has finished it" : word_.reason();
    return end();
  }
  /// It cannot go on. Whether it begins to end with that.
  bool end() { return std::exchange(phase_, phase_ == Phase::running ? Phase::ending : phase_) == Phase::running; }
  /// What would be the reason, if it failed now.
  void set_failure(std::string why) { failure_ = std::move(why); }

  /// A signal, or a word from elsewhere (0), asks for the end. Whether that is news.
  bool stop(int signal) {
    bool first = std::exchange(phase_, Phase::stopping) == Phase::running;
    if (first) verdict_.interrupt(signal);
    return first;
  }
  /// Somebody else has asked for it, perhaps of an earlier launcher; or it is this one's own word.
  bool heeds(const wire::Stop& stop) const {
    return phase_ != Phase::ending && wire::stopping_in(stop) > wish_.asked();
  }

  /// All that leads to the hosts is gone. Whether there is nothing to wait for: the job may have been done before it
  /// was told to stop, and it may have begun under a coordinator that has yet to say so.
  bool may_conclude(Nanos now, bool connected) {
    if (!gone_since_) gone_since_ = now;
    bool not_begun = connected && heard_ && !word_.has_begun();
    return not_begun || word_.is_over() || now >= *gone_since_ + Deaths::kLastWord;
  }
  /// Only the first call counts, which returns true. An agent that could not be told that the job is finished does not
  /// make it fail.
  bool conclude() {
    if (!verdict_.open()) return false;
    auto said = verdict_.interrupted() ? word_.outcome_of_a_stop() : word_.outcome_or(Outcome::failed);
    if (said == Outcome::finished)
      verdict_.finish();
    else if (said == Outcome::stopped)
      verdict_.stop();
    else
      verdict_.fail(std::max(verdict_.exit_status(), 1));
    return true;
  }
  /// The process that leads to a host has ended badly, after the job.
  void on_bad_end(int status) {
    if (!verdict_.interrupted() && phase_ == Phase::ending) verdict_.blame(status);
  }

  Phase phase() const { return phase_; }
  bool running() const { return phase_ == Phase::running; }
  const JobWord& word() const { return word_; }
  const std::string& failure() const { return failure_; }
  const Verdict& verdict() const { return verdict_; }
  StopWish& wish() { return wish_; }

 private:
  bool heard_ = false;  // from the coordinator that there is now
  Phase phase_ = Phase::running;
  JobWord word_;
  StopWish wish_;
  std::string failure_;
  std::optional<Nanos> gone_since_;
  Verdict verdict_;
};

}  // namespace pliant::agent
