// What a worker has of its job: where the job is, the step that it is in, what is in flight, the replica. Its drivers
// (Runtime, ViewDriver, Reporter) work on it, on whichever thread is inside a call of the session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "session/adaptation.h"
#include "session/checkpoint.h"
#include "session/journal.h"
#include "session/platform.h"
#include "session/replicas.h"
#include "step/job_state.h"
#include "step/reductions.h"
#include "step/tables.h"
#include "step/turn.h"

namespace pliant::session {

/// A checkpoint that was read. It is gone on from once the program is in the loop that it was made in: what the program
/// does between its loops must not change what was restored.
struct Resumption {
  Checkpoint from;
  std::string dir;
};

struct Training {
  Training(Platform& from, std::uint64_t worker, std::uint64_t seed)
      : platform(from), self(worker), turn(from.transitions()), reductions(job, from.transitions()) {
    job.seed = seed;
  }

  Platform& platform;
  const std::uint64_t self;  ///< this worker's id
  step::JobState job;
  step::Turn turn;
  step::Reductions reductions;
  Replicas replicas;
  Adaptation adaptation;
  std::optional<Journal> journal;  ///< once a loop has begun
  step::Machine<step::ReplicaTable> replica{step::ReplicaTable::blank, platform.transitions()};
  step::Machine<step::LoopTable> loop{step::LoopTable::none, platform.transitions()};
  std::optional<Resumption> resumption;  ///< of the first member of a job that begins from a checkpoint
  std::uint64_t stripe_digest = 0;       ///< of the stripe of state that is due, as committed

  bool blank() const { return replica.is(step::ReplicaTable::blank); }
  bool started() const { return !loop.is(step::LoopTable::none); }
  /// The loop in which it will go on from a checkpoint; 0: it will not.
  std::uint64_t resumes_in() const { return resumption ? resumption->from.position.loop : 0; }
  void note_stripe() { stripe_digest = replicas.stripe_digest(job.step); }
  /// Nothing is to be done any more: all steps are made, or a policy has said so.
  bool finished() const { return adaptation.stopped() || job.complete(); }
};

/// Goes on where the checkpoint was made, as a new lineage of its folder `dir`. Failure if it does not fit.
void resume_from(Training& training, const Checkpoint& checkpoint, const std::string& dir);
/// Where the job is, for a checkpoint.
Position position_of(Training& training, const std::string& job_name);
/// What monitors and policies want of the batch.
void take_up_batch(step::JobState& job, const Action& action);

}  // namespace pliant::session
