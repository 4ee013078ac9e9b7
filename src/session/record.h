// Records: JSON lines from which the whole course of a job can be proved. `pliant verify` reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "session/ledger.h"

namespace pliant::session {

/// Samples of one contributor to a step.
struct Contribution {
  std::uint64_t worker = 0;
  std::vector<Range> ranges;  ///< positions of the epoch's order
};

/// One line per worker and stable step, in DIR/worker-ID.jsonl:
/// {"kind":"step","t":1700000000.123,"step":7,"view":3,"view_hash":"0123456789abcdef","worker":2,"rank":1,"size":4,
///  "epoch":0,"dataset":60000,"samples":[{"worker":0,"epoch":0,"ranges":[[0,64]]},…],"global_batch":256,"lr":0.1,
///  "loss":0.5,"digest":"…","stall_ms":1.5,"lineage":0}
/// "lr" and "loss" are null if unknown. A step without a sampler has "dataset":0 and no samples.
struct StepRecord {
  double t = 0;  ///< Unix seconds
  std::uint64_t step = 0;
  std::uint64_t view = 0;  ///< its epoch
  std::uint64_t view_hash = 0;
  std::uint64_t worker = 0;
  int rank = 0, size = 0;
  std::uint64_t epoch = 0;
  std::uint64_t dataset = 0;  ///< samples per epoch
  std::vector<Contribution> samples;
  std::uint64_t global_batch = 0;
  double lr = 0, loss = 0;   ///< NaN: unknown
  std::uint64_t digest = 0;  ///< of the state after this step, as far as it is watched
  double stall_ms = 0;       ///< beyond an ordinary step, because of a change of view
  std::uint64_t lineage = 0;
};

/// Appends lines to one file; each is written with one call, so that a kill leaves at most one torn line at the end.
class Recorder {
 public:
  /// Creates `dir` if needed, and `dir`/`name`.jsonl; appends if it is there, in place of a torn line at its end.
  static Result<std::unique_ptr<Recorder>> open(const std::string& dir, const std::string& name);
  ~Recorder();
  void write(const StepRecord& record);
  /// {"kind":"event","t":…,"event":"killed","worker":2,"text":"…"}: what the agent and the coordinator have to say.
  /// `worker` is left out if it is negative.
  void event(double t, const std::string& what, std::int64_t worker, const std::string& text);

 private:
  class Impl;
  explicit Recorder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A step whose view was not that of the step before, and what that cost.
struct Change {
  std::uint64_t step = 0;
  std::uint64_t view = 0;
  int size = 0;
  std::vector<std::uint64_t> came, gone;  ///< workers, by who recorded the steps
  double gap_ms = 0;                      ///< the longest between two records of one worker that saw both steps
  double usual_ms = 0;                    ///< the median of that in steps before
};

/// What the records of a folder prove.
struct Verification {
  bool ok = false;
  std::uint64_t steps = 0, epochs = 0, samples = 0, workers = 0, views = 0, lineages = 0, torn_lines = 0;
  // `epochs` are complete ones; `samples` are all positions used, in every epoch, by steps that count.
  std::vector<Change> changes;       ///< at most 10,000
  std::string changes_text() const;  ///< a table for people
  std::vector<std::string> faults;   ///< one line each: what, where; at most 100, then a count
  std::string text() const;          ///< a few lines for people
};
/// Reads every *.jsonl in `dir`. Per lineage it proves: steps are gapless; all workers that recorded a step recorded
/// the same digest, view, samples and batch for it; in every epoch that was finished each sample was used exactly once,
/// in the last one at most once; views only grow; ranks fit sizes; a worker's own steps ascend. A restart from a
/// checkpoint begins a new lineage at some step of the one before; what came after that step in the old lineage does
/// not count.
Result<Verification> verify_records(const std::string& dir);

}  // namespace pliant::session
