// One run of `pliant chaos`: events in their time, until there are enough of them, the job has ended or a signal comes.
#pragma once

#include <csignal>
#include <optional>
#include <string>

#include "apps/pliant/chaos_executor.h"
#include "apps/pliant/chaos_observer.h"
#include "apps/pliant/chaos_plan.h"
#include "apps/pliant/chaos_report.h"
#include "base/clock.h"
#include "base/fd.h"

namespace pliant::cli::chaos {

struct StormOptions {
  PlanOptions plan;
  std::uint64_t events = 20;
  std::optional<Nanos> duration{};
  bool wait = false;                             ///< for the job's end
  Nanos patience = std::chrono::seconds(60);     ///< without a step, until the job counts as stuck
  Nanos longest_skip = std::chrono::seconds(3);  ///< that an event waits until it is possible
};

class Storm {
 public:
  /// INT, TERM, HUP and QUIT end it; they are blocked from now on. References must outlive this.
  Storm(const Clock& clock, StormOptions options, Observer& observer, Executor& executor);
  /// All of it, and what came of it. Afterwards nothing is stopped or cut any more.
  Report run();
  /// Says a line with the time in front.
  void say(const std::string& line) const;

 private:
  /// True as long as the job runs and nobody has interrupted: looks at the job, does what is due, waits a little.
  bool tick();
  bool happen(std::uint64_t number);
  void note(std::uint64_t number, Kind kind, const Result<std::string>& done);
  void calm_down();
  void conclude(Report& report);
  void sleep_until(Nanos when);
  double seconds_since_step() const;

  const Clock& clock_;
  const StormOptions options_;
  Observer& observer_;
  Executor& executor_;
  Planner planner_;
  Fd signals_;
  const Nanos began_;
  double began_at_ = 0;  // Unix seconds
  bool raging_ = true;   // there are events to come
  bool interrupted_ = false, ended_ = false, stuck_ = false;
  std::vector<Deed> deeds_;
};

}  // namespace pliant::cli::chaos
