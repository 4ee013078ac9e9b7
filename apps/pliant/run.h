// `pliant run`: flags, their checks, and what the agent needs to know.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/pliant/command.h"
#include "apps/pliant/hosts_flags.h"
#include "apps/pliant/output_tail.h"
#include "apps/pliant/status_reporter.h"
#include "apps/pliant/supply_flags.h"
#include "base/result.h"

namespace pliant::cli {

struct RunOptions {
  int workers = 1;
  int least = 0;  ///< start with so many, and never have fewer by choice; 0: start with all, and have at least one
  int most = 512;
  int restarts = 10;                      ///< replacements for workers that fail
  int spare = 0;                          ///< workers beyond those wanted, ready to take somebody's place
  std::chrono::milliseconds warm{10000};  ///< that others wait who are not needed
  std::string attach;                     ///< take up this job instead of starting one
  std::string join;                       ///< the ticket of a job to start workers for on this host; "-": from stdin
  HostSlots here{"", 0};  ///< what this host is called then, and how many it takes; by default its name and cores
  std::string name;       ///< empty: the program's name and a random suffix
  OutputMode output = OutputMode::prefix;
  std::string output_dir;  ///< empty: in the job's directory, gone with it
  int threads = 0;         ///< per worker; 0: an equal share of the usable cores
  std::uint64_t seed = 42;
  StatusMode status = StatusMode::automatic;
  std::chrono::milliseconds grace{5000};  ///< between SIGTERM and SIGKILL
  HostsFlags hosts{};                     ///< where workers run, if not here
  std::vector<HostSlots> places{};        ///< which hosts that are, at the beginning
  SupplyFlags supply{};                   ///< where workers come from, and what they cost
  bool follows_slots = false;             ///< there are as many workers as the hosts there are have slots
  std::vector<std::string> env;           ///< NAME=VALUE
  std::vector<std::string> command;       ///< the program and its arguments, as the user wrote them
};

/// A command line cut where the program of `pliant run` begins, so that no flag of the program is taken for ours.
struct CommandLine {
  std::vector<std::string> flags;
  std::vector<std::string> program;
};
/// Anything but `run` is all flags. mpirun's "-np" becomes "-n".
CommandLine cut_at_program(const std::vector<std::string>& words);
/// Overwrites the values of -x NAME=VALUE in a command line's own memory, so that `ps` does not show them while the job
/// runs. `words` end before the program.
void hide_values(const std::vector<char*>& words);

/// The names of output modes on the command line and in job.json.
std::string_view name_of(OutputMode mode);
std::optional<OutputMode> output_mode(std::string_view name);

/// Starts a job, or takes one up (with the output that it was started with, unless the user chose another), and runs it
/// to its end. Return the exit status.
int run_job(const RunOptions& options);
int attach_to_job(RunOptions options, bool output_chosen);

void add_run(CLI::App& app, Action& action, const std::vector<std::string>& program);

}  // namespace pliant::cli
