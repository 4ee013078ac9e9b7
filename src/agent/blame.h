// Which worker's failure ended the job. One death brings others with it: peers that lose a neighbour may fail too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/ending.h"
#include "base/clock.h"

namespace pliant::agent {

/// A worker that ended badly by itself, not because the agent told it to.
struct Death {
  std::uint64_t id = 0;
  Ending ending;
  int turn = 0;    ///< deaths seen in the same look at all workers share a turn
  Nanos after{0};  ///< since its start
};

/// The death to report: the earliest; within a turn, the lowest id. Nothing if nobody died.
std::optional<Death> first_to_blame(const std::vector<Death>& deaths);

}  // namespace pliant::agent
