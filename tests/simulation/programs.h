// The users' programs that simulated jobs run. Each trains a vector that says, in two copies, how often each sample was
// used, and shows it to the checker whenever a step begins.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "simulation/checker.h"

namespace pliant::sim {

/// What the seed has chosen of the program.
struct Script {
  enum class Kind {
    usual,            ///< one loop; perhaps a short evaluation at an epoch's end
    two_loops,        ///< with something in between
    left_by_break,    ///< a loop that is left in mid-step, and another one
    in_flight,        ///< many plain reductions at once, waited for late
    batches,          ///< another batch in mid-step
    long_evaluation,  ///< on one rank, while the others wait
    throws,           ///< an exception in mid-loop, on one worker or on all
    measures,         ///< the variance of each tensor's gradient, in every step
    grows,            ///< for a minute and more, on hosts some of which do not see each other
  };
  static constexpr std::array<std::string_view, 9> kNames = {
      "usual", "two-loops", "left-by-break", "in-flight", "batches", "long-evaluation", "throws", "measures", "grows"};
  /// Where a loop is left.
  enum class Place { before_lease, after_lease, between_buckets, after_close };
  /// What stands between two loops.
  enum class Between { nothing, pause, average, change };

  Kind kind = Kind::usual;
  std::size_t samples = 40;
  std::uint64_t local_batch = 3, epochs = 3;
  bool evaluates = false;
  std::uint64_t first_epochs = 1;  ///< of two loops, those of the first one
  Between between = Between::nothing;
  std::uint64_t special_step = 5;  ///< in which a loop is left, or somebody throws
  Place place = Place::before_lease;
  bool all_throw = false;
  std::uint64_t in_flight = 10;
  bool waits_in_next_step = false;
};

inline std::string_view name_of(Script::Kind kind) { return Script::kNames[static_cast<std::size_t>(kind)]; }
std::optional<Script::Kind> program_named(std::string_view name);
/// The parts of a script that `kind` looks at, besides the usual ones.
void choose_program(Script& script, Rng dice, std::optional<Script::Kind> wanted);

/// Runs on the process's fiber, until its session has ended.
void run_program(const Script& script, Checker& checker, Process& self);

}  // namespace pliant::sim
