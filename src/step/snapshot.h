// What a newcomer is given besides the tensors.
#pragma once

#include <pliant/pliant.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "record/record.h"
#include "step/job_state.h"

namespace pliant::step {

/// Everything about a job that is not in its tensors.
struct JobSnapshot {
  JobState state;
  std::string adaptation;                     ///< monitors and policies
  std::vector<StateItem> items;               ///< names, types, counts and roles, without data
  std::vector<record::StepRecord> unwritten;  ///< lines that the giver has not written yet (Journal::unwritten)
  bool begins_loop = false;                   ///< the giver's next step does (Journal::begins_loop)
};
std::string encode(const JobSnapshot& snapshot);
/// Bounded by what the bytes hold.
Result<JobSnapshot> decode_snapshot(std::string_view bytes);

}  // namespace pliant::step
