// A job in a cluster that is not there: the same policies, a model of the job's steps, a trace of what can be had.
#pragma once

#include <pliant/policy.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "plan/trace.h"
#include "scale/model.h"

namespace pliant::plan {

struct Job {
  scale::StepModel step;
  /// What a step really took at the sizes that were seen, over what the model says; in between in straight lines.
  std::map<int, double> corrections{};
  /// Seconds of a step, from its workers and samples per worker, instead of the model; may differ from step to step.
  std::function<double(int, double)> step_seconds;
  double samples = 0;            ///< of the whole job
  double local_batch = 0;        ///< per worker; or else
  double global_batch = 0;       ///< in all
  double noise_scale = 0;        ///< of the gradient; 0: not known
  double start_seconds = 2;      ///< until a worker that was asked for is ready
  double change_seconds = 0.02;  ///< that a change of workers costs those there
  int least = 1, most = 1;
};

struct Outcome {
  bool finished = false;  ///< or there was nobody to work any more, and nothing to wait for
  double seconds = 0;
  double worker_seconds = 0;
  double money = 0;
  std::uint64_t steps = 0;
  struct Change {
    double time;
    int workers;
    std::uint64_t step;  ///< the first one with them
  };
  std::vector<Change> changes;  ///< the first one at 0
};

/// Runs the job from `workers` on. Each worker that is there costs what the trace asks, from the moment it is asked
/// for.
Outcome simulate(const Job& job, const Trace& trace, int workers, const std::vector<Policy*>& policies);

}  // namespace pliant::plan
