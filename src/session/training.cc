#include "session/training.h"

#include <fmt/format.h>

#include "base/log.h"

namespace pliant::session {

void take_up_batch(step::JobState& job, const Action& action) {
  if (action.global_batch) job.batch.global = *action.global_batch;
  if (action.local_batch) job.batch.local = *action.local_batch, job.batch.global = 0;
}

Position position_of(Training& training, const std::string& job_name) {
  const auto& job = training.job;
  Position now;
  now.job = job_name;
  now.step = job.step;
  now.seed = job.seed;
  now.lineage = job.lineage;
  now.samples = job.samples;
  now.loop = job.loop;
  now.begins_loop = training.journal->begins_loop();
  now.digest = training.replicas.digest();
  now.workers = training.turn.size();
  now.local_batch = job.batch.local;
  now.global_batch = job.batch.global;
  now.ledger = job.ledger;
  now.adaptation = training.adaptation.save();
  return now;
}

void resume_from(Training& training, const Checkpoint& checkpoint, const std::string& dir) {
  auto& job = training.job;
  auto& replicas = training.replicas;
  const auto& then = checkpoint.position;
  if (then.loop > 0 && then.loop < job.loop)
    throw Failure(Code::mismatch,
                  fmt::format("{} was made in loop {} of the program, this worker is in loop {} already",
                              checkpoint.folder, then.loop, job.loop));
  std::vector<StateItem> like;
  for (const auto& [name, tensor] : checkpoint.tensors)
    like.push_back({name, tensor.dtype, nullptr, 0, Role::other, nullptr, tensor.shape});
  replicas.bring_into_being(like);
  restore(checkpoint, replicas.items()).or_throw();
  if (then.ledger.has_value() != job.ledger.has_value() ||
      (job.ledger && then.ledger->samples() != job.ledger->samples()))
    throw Failure(Code::mismatch, fmt::format("{} was made with another data set", checkpoint.folder));
  if (then.digest != 0 && replicas.digest() != then.digest)
    throw Failure(Code::diverged, fmt::format("{}: the state restored is not the state saved", checkpoint.folder));
  job.step = then.step;
  job.seed = then.seed;
  job.lineage = training.platform.checkpoints().begin_lineage(dir, then.lineage).or_throw();
  job.samples = then.samples;
  job.ledger = then.ledger;
  training.replica.on(step::ReplicaTable::restored);
  training.journal->begin_lineage(job.lineage, job.step, checkpoint.folder);
  if (then.begins_loop) training.journal->begin_loop();
  if (!then.adaptation.empty()) {
    auto loaded = training.adaptation.load(then.adaptation);
    if (!loaded.ok()) log::warn("monitors and policies begin anew: {}", loaded.error().message);
    take_up_batch(job, training.adaptation.batch());
  }
  log::info("resumed from {} at step {}", checkpoint.folder, job.step);
}

}  // namespace pliant::session
