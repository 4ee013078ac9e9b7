// What happens to a simulated job: the seed chooses which faults, when, and whom they hit.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "simulation/checker.h"
#include "simulation/coverage.h"
#include "simulation/world.h"

namespace pliant::sim {

class Faults {
 public:
  /// All must outlive this. `count` faults, one after the other.
  Faults(World& world, Checker& checker, Rng& dice, int count);
  void begin();
  /// When all is calm again, two hosts that are not the coordinator's lose sight of each other for most of a minute,
  /// and the job is asked to grow.
  void part_hosts_later();
  /// Now and then a worker dies that has given its part of a plain reduction: those who hear of that last lack it.
  void lose_after_reductions(const Rng& dice) { reductions_dice_ = dice; }

  /// All workers die, a few times.
  void lose_everybody(const Rng& dice, int times);
  /// Now and then a worker dies that has told one of the others, and no more, that a view is in force.
  void lose_after_views(const Rng& dice) { views_dice_ = dice; }
  /// Whoever has the state may die once there is a checkpoint.
  void spare_nobody() { spares_nobody_ = true; }

  bool lost_everybody() const { return lost_everybody_; }
  /// The whole job was told to leave; or some worker was.
  bool stop_asked() const { return stop_asked_; }
  bool notified() const { return notified_; }
  std::uint64_t happened() const { return faults_; }
  const std::map<std::string, int>& kinds() const { return kinds_; }

 private:
  /// A fault that waits for a worker whose step is in this state.
  struct Aimed {
    Fault fault;
    StepState state;
  };
  void next_fault();
  void fault();
  void calm_down();
  /// Its death leaves somebody who has the state, or a checkpoint.
  bool may_die(const Process& process);
  Process* victim();
  void kill(Process* process);
  void notify(Process* process);
  void pause(Process* process);
  void pause(Process* process, Nanos longest);
  void cut();
  void resize_somehow();
  void join_and_kill();
  void stop_everybody();
  void kill_everybody();
  void kill_coordinator();
  void kill_agent();
  void silence_store();
  void hit_all(Fault fault);
  void aim();
  void lag();
  void hold_up(Process& process, Nanos until_loss);
  void lose_another(std::uint64_t than, Nanos after);
  void switches(const Process& first);
  void publishes(Process& process, const Word& word);
  void fences(const Process& first);
  void lose_after(const Process& process, const Word& word);
  bool dies_after_telling(const Process& process, const wire::ViewNotice& view);
  Fault any_fault();
  void fire(Process& process);
  void strike(Fault fault, Process& process);

  World& world_;
  Checker& checker_;
  Rng& dice_;
  const int hosts_;
  int faults_left_ = 0;
  std::vector<Aimed> aimed_;
  std::optional<Rng> reductions_dice_, losses_dice_, views_dice_;
  bool spares_nobody_ = false, lost_everybody_ = false;
  int losses_after_reductions_ = 0;
  std::optional<StepState> late_in_;            // the next worker in that state is held up
  std::set<std::uint64_t> has_row_out_;         // in this step
  std::optional<std::uint64_t> goes_on_later_;  // a worker that is held up until another has ended the view
  bool late_in_switch_ = false;  // the next one is that has not ended a step with which others take somebody in
  bool loss_in_debt_ = false;    // somebody dies when it owes those the state
  bool stop_asked_ = false, notified_ = false;
  std::uint64_t faults_ = 0;
  std::map<std::string, int> kinds_;
};

}  // namespace pliant::sim
