// What `pliant chaos` sees of a job: its directory, those of its hosts' parts on this machine, and its records.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/pliant/chaos_plan.h"
#include "apps/pliant/chaos_trail.h"
#include "apps/pliant/job_dir.h"
#include "base/clock.h"
#include "base/result.h"

namespace pliant::cli::chaos {

/// What this process did to workers, by their ids.
struct Marks {
  std::map<std::uint64_t, int> stopped;     ///< how often, and not yet continued
  std::map<std::uint64_t, double> resumed;  ///< when they were continued last (Unix seconds)
  std::map<std::uint64_t, double> struck;   ///< when they were told to leave or to die
};

/// A part of the job that has an agent: all of it, or one host's.
struct AgentSeen {
  std::string host{};
  ProcessId process;
};

class Observer {
 public:
  /// `records` may be empty: then a worker counts as holding the state once it has been a member for two seconds.
  Observer(std::string base, std::string dir, std::string records);

  /// Reads all of it anew. False once nothing of the job runs any more.
  bool look();
  /// As of the last look().
  Situation situation(const Marks& marks) const;

  const Job& job() const { return job_; }
  /// A worker's process; nothing if it does not run.
  std::optional<ProcessId> worker(std::uint64_t id) const;
  std::vector<AgentSeen> agents() const { return agents_; }
  const ProcessId& coordinator() const { return coordinator_; }
  /// "worker 3 (rank 1, process 4242)".
  std::string words(std::uint64_t id) const;
  std::size_t members() const { return ranks_.size(); }
  std::size_t workers() const { return workers_.size(); }
  std::uint32_t wanted() const { return wanted_; }
  std::uint64_t step() const { return step_; }
  /// That the job shall make; 0: not known.
  std::uint64_t steps() const { return steps_; }
  /// Unix seconds at which the newest step was first seen.
  double stepped_at() const { return stepped_at_; }
  const Trail& trail() const { return trail_; }
  /// Of records, or else as they were seen in the agent's reports.
  const StepTimes& step_times() const { return trail_.dir().empty() ? seen_ : trail_.steps(); }

 private:
  struct Worker {
    ProcessId process;
    std::string host;
    double member_since = 0;  // Unix seconds; 0: it is not a member
  };
  void look_at(const Job& part, double now);
  void look_at_view(const std::string& dir);
  void look_at_progress(double now);
  bool holds_state(std::uint64_t id, const Worker& worker, const Marks& marks) const;

  std::string base_, dir_;
  Job job_;
  Trail trail_;
  std::map<std::uint64_t, Worker> workers_;  // those that run
  std::map<std::uint64_t, double> member_since_;
  std::map<std::uint64_t, int> ranks_;              // of the newest view
  std::pair<std::uint64_t, std::uint64_t> view_{};  // number and term
  std::vector<AgentSeen> agents_;
  ProcessId coordinator_;
  std::uint32_t wanted_ = 1;
  std::uint64_t step_ = 0, steps_ = 0;
  double stepped_at_ = 0;
  StepTimes seen_;
};

/// The folder that the job's workers write records to; empty if there is none.
std::string records_of(const Job& job);
/// Why this job must not be touched by this user, or nothing: its directory and all its processes must be theirs.
std::string objection_to(const Job& job);
/// open_process, for processes of this user only. Code::refused for those of others and for the first two of a machine.
Result<Fd> open_own_process(const ProcessId& process);

}  // namespace pliant::cli::chaos
