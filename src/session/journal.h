// What a worker writes down: a record of every stable step, and the job's checkpoints. Where to, `pliant run` says in
// the environment:
//   PLIANT_RECORD             a folder for records
//   PLIANT_CHECKPOINT         a folder for checkpoints
//   PLIANT_CHECKPOINT_EVERY   "500" steps, or "30s" (default: 60s)
//   PLIANT_CHECKPOINT_KEEP    how many to keep (default: 3)
//   PLIANT_RESUME             a folder of checkpoints to begin with
#pragma once

#include <pliant/pliant.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "session/checkpoint.h"
#include "session/record.h"

namespace pliant::session {

struct JournalOptions {
  std::string record_dir;
  std::string checkpoint_dir;
  std::uint64_t every_steps = 0;  ///< 0: by time
  Nanos every_time = std::chrono::seconds(60);
  int keep = 3;
  std::string resume_dir;
};
Result<JournalOptions> journal_options();
/// "500" or "30s", "5m", "1h".
Status parse_every(const std::string& text, JournalOptions& options);

/// The number of a new lineage that begins with a checkpoint in `dir`: never one that was used there before, even if
/// that run wrote no checkpoint of its own. Kept in dir/lineage.
Result<std::uint64_t> begin_lineage(const std::string& dir, std::uint64_t after);

/// Threads: the training thread.
class Journal {
 public:
  Journal(JournalOptions options, std::uint64_t worker);

  bool records() const { return recorder_ != nullptr; }
  const std::string& resume_dir() const { return options_.resume_dir; }

  /// A step is done here; it is written when it is stable.
  void note(StepRecord record);
  /// The step noted last is everybody's, and this was its loss (NaN: unknown). `steps` are done by all.
  void stable(std::uint64_t steps, double loss);

  /// Is it time for a checkpoint after `steps` steps?
  bool due(std::uint64_t steps) const;
  bool keeps_checkpoints() const { return !options_.checkpoint_dir.empty(); }
  /// Begins to write one; it takes its name when `stable` has been called for its step.
  void checkpoint(Position position, const std::vector<StateItem>& items);
  /// The same for the job's last: what is being written is finished first, so that this one is not left out.
  void last_checkpoint(Position position, const std::vector<StateItem>& items);
  /// The job ends here: what is being written gets its name, and this waits for it.
  void close(std::uint64_t steps);

 private:
  const JournalOptions options_;
  SteadyClock clock_;
  std::unique_ptr<Recorder> recorder_;
  std::optional<StepRecord> pending_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::uint64_t last_steps_ = 0;
  Nanos last_time_;
};

}  // namespace pliant::session
