// What a worker writes down: a record of every stable step, and the job's checkpoints. Where to, `pliant run` says in
// the environment:
//   PLIANT_RECORD             a folder for records
//   PLIANT_CHECKPOINT         a folder for checkpoints
//   PLIANT_CHECKPOINT_EVERY   "500" steps, or "30s" (default: 60s)
//   PLIANT_CHECKPOINT_KEEP    how many to keep (default: 3)
//   PLIANT_RESUME             a folder of checkpoints to begin with
//   PLIANT_FILE_MODE          who may read records and checkpoints: 0600 (the default), 0640 or 0644
#pragma once

#include <pliant/pliant.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "record/recorder.h"
#include "session/checkpoint.h"

namespace pliant::session {

class Platform;

struct JournalOptions {
  std::string record_dir;
  std::string checkpoint_dir;
  std::uint64_t every_steps = 0;  ///< 0: by time
  Nanos every_time = std::chrono::seconds(60);
  int keep = 3;
  std::string resume_dir;
  mode_t file_mode = 0600;  ///< of records and checkpoints; their folders get the same with x for r
};
Result<JournalOptions> journal_options(const Platform& platform);
/// "500" or "30s", "5m", "1h".
Status parse_every(const std::string& text, JournalOptions& options);

/// The worker's file in the folder for records; nullptr if there is no such folder.
Result<std::unique_ptr<record::RecordSink>> open_records(const JournalOptions& options, std::uint64_t worker);

/// Threads: the training thread.
class Journal {
 public:
  /// `platform` must outlive it. `sink` may be nullptr: nothing is recorded.
  Journal(JournalOptions options, std::uint64_t worker, Platform& platform, std::unique_ptr<record::RecordSink> sink);

  bool records() const { return sink_ != nullptr; }
  const std::string& resume_dir() const { return options_.resume_dir; }

  /// A lineage begins with a checkpoint that this worker has read.
  void begin_lineage(std::uint64_t lineage, std::uint64_t steps, const std::string& folder);
  /// Another loop of the program begins, perhaps with other state.
  void begin_loop();
  /// The next step is the first of a loop.
  bool begins_loop() const { return begins_loop_; }
  /// A step is done here; it is written when it is stable.
  void note(record::StepRecord record);
  /// The steps noted so far are everybody's, and this was the loss of the last of them (NaN: unknown). `steps` are done
  /// by all.
  void stable(std::uint64_t steps, double loss);
  /// Lines of steps that are done but not written: a worker that is given the state is given these too, so that a step
  /// in force is recorded by somebody who holds it, whoever is lost next.
  const std::vector<record::StepRecord>& unwritten() const { return pending_; }
  /// Takes over another worker's unwritten lines. They are written when their steps are stable, whether or not the
  /// other has done so: equal lines do no harm. Steps that this worker recorded itself are left out.
  void adopt(std::vector<record::StepRecord> lines);
  /// The loop ends here after `steps` steps: writes what is noted, and the outcome. Only the first call for a loop
  /// counts.
  void end(record::Outcome outcome, std::uint64_t lineage, std::uint64_t steps);

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
  Platform& platform_;
  const std::uint64_t worker_;
  std::unique_ptr<record::RecordSink> sink_;
  std::vector<record::StepRecord> pending_;  // by place
  std::optional<record::Place> newest_;      // that is noted or written
  bool begins_loop_ = false;                 // the next step does
  bool ended_ = false;
  std::unique_ptr<CheckpointSink> writer_;
  std::uint64_t last_steps_ = 0;
  Nanos last_time_;
};

}  // namespace pliant::session
