// What a job costs and how fast it is, for whoever shows that: its pace and its ledger, from the coordinator's words.
// Pure: no clock, no socket.
#pragma once

#include <optional>
#include <string>

#include "agent/job_word.h"
#include "apps/pliant/account.h"
#include "apps/pliant/status_line.h"
#include "base/clock.h"
#include "wire/messages.h"

namespace pliant::cli {

class JobNews {
 public:
  /// `price` is that of the job's plan.
  explicit JobNews(const std::string& price);

  void on_state(Nanos now, const wire::JobState& state) { account_.on_state(seconds(now), state); }
  void on_progress(Nanos now, const wire::Progress& progress);
  Account& account() { return account_; }
  const Account& account() const { return account_; }

  /// What of a snapshot is known from here. `runs`: steps are made, so that it makes sense to say how long it takes.
  void describe(Snapshot& snapshot, const agent::JobWord& word, Nanos now, bool runs) const;

 private:
  std::optional<wire::Progress> progress_;
  Pace pace_;
  Account account_;
};

}  // namespace pliant::cli
