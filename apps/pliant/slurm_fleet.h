// The Slurm jobs that a job has, as far as is known, and the file that says so to another head. Nothing here runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/slurm_queue.h"
#include "base/clock.h"
#include "base/result.h"

namespace pliant::cli {

/// One that is not over, as others see it.
struct SlurmJob {
  std::uint64_t id = 0;
  SlurmState state = SlurmState::waiting;
  std::string host{};     ///< as its agent calls it; empty while it has no node
  bool released = false;  ///< not of use any more
};

/// The same with all that is known of it.
struct FleetJob {
  std::uint64_t id = 0;
  SlurmState state = SlurmState::waiting;
  std::uint32_t restarts = 0;
  std::string host{};
  Nanos submitted{0};
  std::optional<Nanos> running_since{};
  int missed = 0;        ///< so many answers did not name it
  bool noticed = false;  ///< what runs of it will be taken, and that was said
  bool preempted = false;
  // Of one that is released.
  bool released = false;
  bool told = false;  ///< its agent
  Nanos next_order{0};
  Nanos cancel_at{0};

  /// The queue names it. If what ran of it is taken, and that was not known: the host that is lost.
  std::optional<std::string> meet(const SlurmEntry& entry, Nanos now);
  bool runs() const { return state == SlurmState::running; }
  /// It ran for so long by now.
  Nanos age(Nanos now) const { return now - running_since.value_or(now); }
};

class SlurmFleet {
 public:
  static constexpr int kMostMissed = 3;  ///< answers that do not name a Slurm job: then it is gone

  /// `dir` is the directory of the job, whose name is `job`. Another head may have left a note there.
  SlurmFleet(const std::string& dir, const std::string& job, Nanos now);

  /// Of all its Slurm jobs, and of nobody else's: so those are found as well whose number was never learnt.
  const std::string& name() const { return name_; }
  /// There was a note: there may be Slurm jobs that it does not name.
  bool taken_up() const { return taken_up_; }
  /// Has to be there before another one is submitted, whatever becomes of this process.
  Status write_note() const;

  bool empty() const { return jobs_.empty(); }
  std::vector<FleetJob>& jobs() { return jobs_; }  ///< in the order of their numbers
  FleetJob* find(std::uint64_t id);
  void add(std::uint64_t id, Nanos now);
  /// It is over. REQUIRES: there is one.
  FleetJob take(std::uint64_t id);
  /// The queue was asked, at `began`, and has not answered yet: who was there before should be in the answer.
  void expect_all(Nanos began);
  /// Those that too many answers did not name; they are no part of this any more.
  std::vector<FleetJob> take_missing();

  /// That are not released.
  std::uint32_t useful() const;
  /// ... and run.
  std::uint32_t running() const;
  /// What is released first: those that wait, then those that will be taken, then the newest. REQUIRES: useful() > 0.
  FleetJob& least_useful();

  /// As of the last show().
  const std::vector<SlurmJob>& shown() const { return shown_; }
  void show();
  /// Where agents write: see SlurmProvider::outputs().
  const std::vector<std::string>& outputs() const { return outputs_; }

 private:
  const std::string dir_;
  const std::string note_file_;
  std::string name_;
  bool taken_up_ = false;
  std::vector<FleetJob> jobs_;
  std::vector<SlurmJob> shown_;
  std::vector<std::string> outputs_;
};

}  // namespace pliant::cli
