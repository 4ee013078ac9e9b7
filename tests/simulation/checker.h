// Looks at the state of every worker whenever a step begins, and at the end: weights as a function of the samples seen,
// the same for all, with every sample of an epoch used once.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>

#include "base/hash.h"
#include "simulation/world.h"

namespace pliant::sim {

class Checker {
 public:
  Checker(World& world, std::size_t samples, std::uint64_t epochs)
      : world_(world), samples_(samples), epochs_(epochs) {}

  /// Where a worker is when it begins a step.
  struct Moment {
    std::uint64_t lineage = 0, loop = 1, step = 0, epoch = 0;
    double phase = 0;  ///< shared state that the program changes by itself
  };
  /// A worker begins a step with this state: how often each sample was used so far, in two copies.
  void begins(Process& process, const Moment& moment, std::span<const double> counts);
  /// A value that must be the same on all workers that see it.
  void agrees(Process& process, std::uint64_t lineage, const std::string& key, double value);
  /// What cannot be has happened, says the program.
  void objects(Process& process, const std::string& what);
  /// A program that throws does so here: on one worker that others can go on without, or on all.
  bool shall_throw(Process& process, bool all);
  /// It does so now: the others may have been left behind meanwhile.
  void throws(const Process& process) { last_threw_ = last_threw_ || !world_.may_die(process); }
  /// Its loop has ended, because the work was done.
  void finished(Process& process, std::span<const double> counts);
  /// It was asked to leave, and has.
  void left(Process& process) { left_.insert(process.id()); }

  /// A checkpoint has got its name: it is of a state that the job has been in.
  void named(const session::Checkpoint& checkpoint);

  /// Of all that live, only these hold the state of the newest step, in the newest view that anybody acts in.
  std::set<std::uint64_t> holders() const;
  std::uint64_t steps() const { return newest_; }
  bool any_finished() const { return any_finished_; }
  bool any_threw() const { return any_threw_; }
  /// One that nobody could go on without.
  bool last_threw() const { return last_threw_; }

 private:
  struct State {
    std::uint64_t digest = 0, epoch = 0;
    std::uint64_t by = 0;
  };
  struct Value {
    double value = 0;
    std::uint64_t by = 0;
  };
  World& world_;
  const std::size_t samples_;
  const std::uint64_t epochs_;
  std::map<std::array<std::uint64_t, 3>, State> states_;  // by lineage, loop and step
  std::map<std::string, Value> values_;
  std::map<std::uint64_t, std::uint64_t> progress_;  // worker -> the step it began last
  std::set<std::uint64_t> left_;
  std::uint64_t lineage_ = 0, newest_ = 0;
  bool any_finished_ = false, any_threw_ = false, last_threw_ = false;
};

}  // namespace pliant::sim
