// Records: lines from which the whole course of a job can be proved. Workers write them (recorder.h), `pliant verify`
// reads them (verify.h), and docs/bytes.md says what each field means and why it is there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/range.h"

namespace pliant::record {

/// Of the lines that are written now. Lines without a version are of version 1 (Pliant 0.5 and before): they have no
/// leases, no chain of digests and no end.
inline constexpr int kVersion = 2;

/// Orders the steps of a job: (lineage, step).
using Place = std::pair<std::uint64_t, std::uint64_t>;

/// Samples of one contributor to a step.
struct Contribution {
  std::uint64_t worker = 0;
  std::vector<Range> ranges;  ///< positions of the epoch's order
  /// Salvaged: the worker is dead, and this member of the view added its complete gradients to its own.
  std::optional<std::uint64_t> by{};
  bool operator==(const Contribution&) const = default;
};

/// Among whom the samples of a step were divided when it began. A step that is closed after a loss has a later view.
struct LeaseView {
  std::uint64_t view = 0;  ///< its number
  std::uint64_t hash = 0;  ///< of its number and members; the term that decided it may differ between workers
  std::vector<std::uint64_t> workers;  ///< by rank
  bool operator==(const LeaseView&) const = default;
};

/// Of something that a step changes. What one step notes as after is what the next one notes as before.
struct Digests {
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  bool operator==(const Digests&) const = default;
};

/// One line per worker and stable step.
struct StepRecord {
  int version = kVersion;
  double t = 0;  ///< Unix seconds
  std::uint64_t step = 0;
  std::uint64_t view = 0;  ///< the number of the view that the step was closed in
  std::uint64_t view_hash = 0;
  std::uint64_t worker = 0;           ///< whose step this is
  std::optional<std::uint64_t> by{};  ///< who wrote the line, if that was not `worker`
  int rank = 0, size = 0;
  std::uint64_t epoch = 0;
  std::uint64_t dataset = 0;          ///< samples per epoch; 0 without a sampler
  std::vector<Contribution> samples;  ///< as all members agreed in the step's summary
  bool delivered = false;             ///< results with everybody's samples were in use before the step was closed
  LeaseView lease;
  std::vector<Range> took;  ///< what `worker` itself was given by its sampler
  std::uint64_t global_batch = 0;
  double lr = 0, loss = 0;  ///< NaN: unknown
  Digests digest;  ///< of a stripe of the shared state: stripe `step` before this step, stripe `step + 1` after it
  Digests ledger;  ///< of step number, seed and ledger, all of it
  bool begins_loop = false;  ///< the program may have changed the state since the step before
  double stall_ms = 0;       ///< beyond an ordinary step, because of a change of view
  std::uint64_t lineage = 0;
  std::optional<std::uint64_t> other_epoch{};  ///< as read: of a contribution whose epoch is not the step's

  Place place() const { return {lineage, step}; }
  std::uint64_t writer() const { return by.value_or(worker); }
};

/// A lineage begins from a checkpoint. Written by the worker that read it.
struct BeginRecord {
  double t = 0;
  std::uint64_t worker = 0;
  std::uint64_t lineage = 0;
  std::uint64_t steps = 0;  ///< that the checkpoint has behind it
  std::string text;         ///< the checkpoint's folder
};

enum class Outcome {
  finished,  ///< the work that the loop was asked for is done
  stopped,   ///< all workers were asked to leave
  left,      ///< this worker was asked to leave; the others go on
  quit,      ///< the program went out of the loop by itself
  failed,    ///< an error or an exception ended the loop
};
const char* name_of(Outcome outcome);
std::optional<Outcome> outcome_named(const std::string& name);

/// A worker's loop has ended.
struct EndRecord {
  double t = 0;
  std::uint64_t worker = 0;
  std::uint64_t lineage = 0;
  std::uint64_t steps = 0;  ///< that the job had behind it, as this worker saw it
  Outcome outcome = Outcome::finished;
};

/// What the agent and the coordinator have to say.
struct EventRecord {
  double t = 0;
  std::string event;
  std::optional<std::uint64_t> worker{};
  std::string text;
};

using Line = std::variant<StepRecord, BeginRecord, EndRecord, EventRecord>;

}  // namespace pliant::record
