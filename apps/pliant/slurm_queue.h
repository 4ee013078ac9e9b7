// What is said to Slurm's programs, and what they answer: words and text, nothing that runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace pliant::cli {

/// What each Slurm job asks for; empty: Slurm's own choice.
struct SlurmOptions {
  std::string partition{};
  std::string account{};
  std::string qos{};
  std::string time_limit{};
  std::string constraint{};
  std::uint32_t slots = 1;           ///< workers of each Slurm job, which is always on one node
  std::uint32_t cores = 1;           ///< of each slot
  std::vector<std::string> extra{};  ///< more words for sbatch
};
/// "partition=spot,slots=2,account=a,qos=q,time=1:00:00,cores=2,constraint=c,extra=--gres=gpu:2"; all may be left out,
/// and "extra" may be there several times. Code::invalid says what is wrong, and what there is.
Result<SlurmOptions> parse_slurm(const std::string& text);

/// The job that the Slurm jobs belong to.
struct SlurmPlace {
  std::string dir;                            ///< its directory, which nodes must see
  std::string job;                            ///< its name
  std::string pliant;                         ///< where this program is on the nodes
  Nanos notice{0};                            ///< that agents need to end in good order
  Nanos patience = std::chrono::seconds(30);  ///< for one run of one of Slurm's programs
};

/// The exit code of a script whose node does not see the job's directory.
inline constexpr int kNoTicket = 66;
/// The script of a Slurm job. It starts the agent as a job step, because that is what Slurm sends SIGTERM to, by itself
/// (preemption with a grace time, the end of a time limit) or for `scancel --signal`; the script alone would hear
/// nothing. With that the agent has until Slurm's grace time or KillWait is over. No secret is in it: clusters may
/// archive scripts. The job's ticket is read where the job runs, from a file of the job's directory that nobody else
/// can read; without it the script ends with kNoTicket. What the agent writes goes to that directory too.
std::string slurm_script(const SlurmOptions& options, const SlurmPlace& place);
/// Without ".out" and ".err": that is where.
std::string slurm_output(const std::string& dir, std::uint64_t id);
/// What the agent of a Slurm job calls its host.
std::string slurm_host(const std::string& node, std::uint64_t id);

/// The arguments of each; `name` is what all Slurm jobs of the job are called.
std::vector<std::string> sbatch_words(const SlurmOptions& options, const SlurmPlace& place, const std::string& name);
std::vector<std::string> squeue_words(const std::string& name);
std::vector<std::string> sinfo_words(const SlurmOptions& options);
/// All that are called so.
std::vector<std::string> scancel_words(const std::string& name);
/// `gently`: only the agents get a signal, SIGTERM; else the Slurm jobs are to end.
std::vector<std::string> scancel_words(const std::vector<std::uint64_t>& ids, bool gently);
/// `inherited` without what an outer Slurm job or the user's habits would change.
std::vector<std::string> slurm_environment(std::vector<std::string> inherited);

enum class SlurmState {
  waiting,  ///< for a node
  running,
  leaving,  ///< its node is being cleaned; it may come back then
  over,
};

/// A line of squeue's.
struct SlurmEntry {
  std::uint64_t id = 0;
  SlurmState state = SlurmState::waiting;
  std::string word;                         ///< the state as Slurm calls it
  std::uint32_t restarts = 0;               ///< how often it was queued again
  std::optional<std::int64_t> ends{};       ///< seconds since 1970
  std::optional<std::int64_t> preempted{};  ///< likewise: since when somebody else is to have its node
  int status = 0;                           ///< as wait() has it
  std::string node{};                       ///< empty: none yet
  /// Slurm or its people have ended it, or will; not the agent itself.
  bool taken() const;
  /// Between being told and being ended, if that is known.
  double grace() const;
  /// "FAILED, exit code 3".
  std::string words() const;
};
/// Code::protocol if anything makes no sense.
Result<std::vector<SlurmEntry>> parse_queue(const std::string& text);
/// What sbatch answers: "12" or "12;cluster".
Result<std::uint64_t> parse_submitted(const std::string& text);
/// Nodes that are idle, in all of sinfo's lines or in those of the default partition.
Result<std::uint32_t> parse_idle(const std::string& text, bool of_default);

}  // namespace pliant::cli
