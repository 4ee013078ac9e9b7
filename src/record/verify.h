// What the records of a job prove.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "record/record.h"
#include "record/recorder.h"

namespace pliant::record {

/// A step whose view was not that of the step before, and what that cost.
struct Change {
  std::uint64_t step = 0;
  std::uint64_t view = 0;
  int size = 0;
  std::vector<std::uint64_t> came, gone;  ///< workers, by who recorded the steps
  double gap_ms = 0;                      ///< the longest between two records of one worker that saw both steps
  double usual_ms = 0;                    ///< the median of that in steps before
};

struct VerifyOptions {
  /// The job still runs, or its records are known to be cut off: that they have no end is a note, not a fault.
  bool partial = false;
};

struct Verification {
  bool ok = false;
  bool partial = false;  ///< what was asked for
  std::uint64_t steps = 0, epochs = 0, samples = 0, workers = 0, views = 0, lineages = 0, torn_lines = 0;
  // `epochs` are complete ones; `samples` are all positions used, in every epoch, by steps that count.
  std::optional<Outcome> outcome;    ///< of the job, if its workers said so; never `left`
  std::vector<Change> changes;       ///< at most 10,000
  std::string changes_text() const;  ///< a table for people
  std::vector<std::string> faults;   ///< one line each: what, where; at most 100, then a count
  std::vector<std::string> notes;    ///< the same, of what is worth a look but no fault
  std::string text() const;          ///< a few lines for people
};

/// Per lineage it proves:
///  - steps are gapless, and all workers that recorded a step recorded the same of it: digests, views, samples, batch;
///  - state and ledger before a step are those after the step before, also from one lineage to the next;
///  - what a worker took as its lease is what the step counts as its samples; only those whom samples were dealt to
///    contribute; a worker that is no member of the step's view contributes only if a member salvaged its gradients;
///  - in every epoch that was finished each sample was used exactly once, in the last one at most once;
///  - views only grow, ranks fit sizes, a worker's own steps ascend, and a member records its steps;
///  - the job said how it ended, right after the last step that is recorded.
/// A restart from a checkpoint begins a new lineage at some step of the one before; what came after that step in the
/// old lineage does not count.
/// Lines of version 1 are held to what they have.
Verification verify(std::span<const MemoryLog> logs, const VerifyOptions& options = {});
/// The same for every *.jsonl in `dir`. Code::not_found if there are no steps, and nothing is wrong either.
Result<Verification> verify_records(const std::string& dir, const VerifyOptions& options = {});

}  // namespace pliant::record
