// What becomes of a step that was interrupted, and which view follows a step: pure functions of what all members have
// said, so that all come to the same answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "membership/view.h"

namespace pliant::membership {

/// Where a member stands when it enters a view: the first thing that the members of a new view tell each other.
struct Report {
  bool blank = false;        ///< a newcomer: has no state yet
  std::uint64_t step = 0;    ///< the step it is in, or that it is about to begin
  bool in_step = false;      ///< false: between two steps
  bool complete = false;     ///< in a step, and has every result of it
  bool closed = false;       ///< in a step, and knows that all have every result of it: it may have acted on them
  std::uint64_t layout = 0;  ///< hash of what it shares
  std::uint64_t digest = 0;  ///< of the shared state as of the last step that it committed, in joins and recoveries
};

struct Verdict {
  enum class Kind {
    go_on,  ///< all are at the same point, and nothing is missing
    redo,   ///< the step is reduced again from the gradients of those who are left; who has it complete forgets that
  };
  Kind kind = Kind::go_on;
  int state_from = -1;  ///< the lowest rank that has state, if there are newcomers; else -1
  /// What comes first in the view. Whoever is still in the step before has it complete, and commits it.
  std::uint64_t step = 0;
  /// Some are in `step` already, with samples leased in an earlier view: they submit it again, all others contribute
  /// nothing to it, because a lease of this view would overlap with those.
  bool begun = false;
  std::string contradiction;  ///< reports that cannot come from one job; empty if all is well
};

/// By rank of the new view.
///  - nobody has state: all are blank, which is a job's start: go_on, state_from 0. In a later view it is the end: who
///    had state is gone.
///  - newcomers have no part in the verdict. They get the state as of the last committed step, before a redo.
///    (A recovery may have to take up a plan whose last step is not complete at anybody who stays.)
///  - all at the same step: go_on if all have it complete or none is in it, else redo. Nobody can have acted on what
///    somebody lacks: a step is closed when all are known to have it. Who is not in it yet has nothing to submit.
///  - one step apart: those at s+1 have closed s, so those still in s have it complete: go_on, or redo if s+1 has begun
///  - anything else is a contradiction, named by ranks: a step closed that somebody has not complete, or complete that
///    somebody has not begun, members further apart, other layouts, other digests after the same step (0: not told)
Verdict settle(const std::vector<Report>& reports);

/// Whether a member goes after this step.
enum class Leaving : std::uint8_t {
  no,
  yes,
  once_relieved,  ///< it was told to, and knows of somebody who is coming: the job shall not end with it
};

/// As a summary has it; whatever else a peer may write there is a wish to leave.
constexpr Leaving leaving_from(std::uint64_t word) {
  return word == 0 ? Leaving::no : word == 2 ? Leaving::once_relieved : Leaving::yes;
}

/// What each member says of the next view in its summary.
struct Outlook {
  std::uint64_t plan = 0;  ///< hash of the newest plan it holds; 0: none
  Leaving leaving = Leaving::no;
};

/// All were told to leave, and nobody is coming: the job ends with this step.
bool nobody_goes_on(const std::vector<Outlook>& outlooks);

/// The view after a step that was closed with these outlooks (by rank of `now`): the plan, if all hold the same one,
/// else `now`; without those who leave, unless nobody of `now` would be left (then they stay for another step).
/// Nothing if that has the members of `now`, or if the plan keeps none of them: newcomers have no state.
/// Whoever has closed the step has the state, and votes from then on: if there were newcomers in `now`, and nobody else
/// comes or goes, the next view differs only in votes. Every change makes a new epoch; the term stays the plan's.
/// `plan` is the one that this member named in its own outlook, even if it has heard of a newer one since.
std::optional<View> next_view(const View& now, const std::vector<Outlook>& outlooks, const std::optional<View>& plan);

}  // namespace pliant::membership
