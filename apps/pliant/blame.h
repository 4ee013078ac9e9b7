// Which worker's failure ended the job. One death brings others with it: peers that lose a neighbour fail too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/process.h"
#include "base/clock.h"

namespace pliant::cli {

/// A worker that ended badly by itself, not because the agent told it to.
struct Death {
  int rank = 0;
  Ending ending;
  int turn = 0;    ///< deaths seen in the same look at all workers share a turn
  Nanos after{0};  ///< since its start
};

/// A worker's word that a rank, possibly its own, is to blame.
struct Accusation {
  int by = 0;
  int rank = 0;
  std::string reason;
};

/// The death to report. Ranks that others accuse come first if they really died, then the earliest; within a turn,
/// those that do not accuse somebody else, then the lowest rank. Nothing if nobody died.
std::optional<Death> first_to_blame(const std::vector<Death>& deaths, const std::vector<Accusation>& accusations);

}  // namespace pliant::cli
