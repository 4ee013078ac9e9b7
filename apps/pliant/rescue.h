// What is left of a job whose state nobody holds any more: the newest good checkpoint that it has written itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/pliant/job_dir.h"
#include "base/result.h"

namespace pliant::cli {

/// The value of KEY in a list of KEY=VALUE; empty if it is not there. The last one counts.
std::string value_in(const std::vector<std::string>& env, std::string_view key);

/// Its step. What an earlier job left in the same folder does not count, unless this job was resumed from it. Reads and
/// checks all of it. An error says in one line why there is none.
Result<std::uint64_t> newest_checkpoint_of(const JobRecord& record);

}  // namespace pliant::cli
