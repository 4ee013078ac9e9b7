// What a job was like, from its records.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "scale/model.h"

namespace pliant::plan {

struct Measured {
  /// The mean of the steps at each number of workers, ascending; steps with a change of workers in them are left out.
  std::vector<scale::Observation> shapes;
  std::uint64_t steps = 0;
  double samples = 0;        ///< of the whole job
  double global_batch = 0;   ///< the same at all sizes; 0: it went with the workers
  double local_batch = 0;    ///< then, per worker
  double stall_seconds = 0;  ///< of a change of workers, in the mean
};

/// For plan::Job.
std::map<int, double> corrections_to(const scale::StepModel& model, const std::vector<scale::Observation>& shapes);
double correction_at(const std::map<int, double>& corrections, int workers);

/// Code::invalid if there is nothing to learn from.
Result<Measured> read_measured(const std::string& dir);

}  // namespace pliant::plan
