// A whole job in one thread, on simulated time: hosts and the links between them, workers that run real sessions, and
// whoever runs the job (simulation/offices.h). Everything follows from the seed.
#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "record/recorder.h"
#include "session/worker_note.h"
#include "simulation/offices.h"
#include "simulation/process.h"
#include "simulation/scheduler.h"
#include "simulation/twin_checkpoints.h"
#include "simulation/twin_transport.h"

namespace pliant::sim {

struct WorldOptions {
  std::uint64_t seed = 0;
  int hosts = 1;
  int workers = 3;     ///< at the start
  bool store = false;  ///< outside of the job
  bool trace = false;  ///< keep a line for every event
  Coverage* coverage = nullptr;
  std::uint64_t checkpoint_every = 0;  ///< so many steps; 0: there are no checkpoints
  int checkpoints_kept = 1;
};

class World {
 public:
  using Program = std::function<void(Process& self)>;
  World(const WorldOptions& options, Program program);
  ~World();

  Nanos now() const { return scheduler_.now(); }
  Rng& rng() { return scheduler_.rng(); }
  Scheduler& scheduler() { return scheduler_; }
  const WorldOptions& options() const { return options_; }
  std::uint64_t next_number() { return ++numbers_; }

  /// Starts the agents, which have a coordinator started, which has workers started.
  void begin() { offices_.begin(); }
  /// Whoever ran the job has said how it ended, and no worker is left.
  bool over() const { return offices_.end().has_value() && processes_.empty(); }

  // ---- workers ----
  std::vector<Process*> workers();  // that live
  Process* worker(std::uint64_t id);
  bool lives(std::uint64_t id) const;
  wire::LastView last_view_of(std::uint64_t id) const;
  /// The number of the newest view that anybody knows to be in force, or did.
  std::uint64_t newest_view() const;
  /// Starts it; its pid.
  int spawn(std::uint64_t id, const std::string& host);
  /// What it has left in writing.
  session::WorkerNote note_of(std::uint64_t id) const;
  void kill(Process& process);
  /// SIGSTOP, until it is told to go on; those who are connected to it notice after a while.
  void stop(Process& process);
  /// Asked before a process dies where it was doomed to.
  std::function<bool(const Process& process)> may_die = [](const Process&) { return true; };
  void died(Process& process, bool good);
  /// Called when a worker's step has come into another state.
  std::function<void(Process& process)> reached = [](Process&) {};
  /// Called when a worker has stored a view, which it says to others next.
  std::function<void(Process& process)> switches = [](Process&) {};
  /// Called when a worker tells another one that a view is in force; true: that is its last word.
  std::function<bool(Process& process, const wire::ViewNotice& view)> dies_after_telling =
      [](Process&, const wire::ViewNotice&) { return false; };
  /// Called when a worker has ended a view.
  std::function<void(const Process& process)> fences = [](const Process&) {};
  /// Called when a worker publishes a word.
  std::function<void(Process& process, const Word& word)> publishes = [](Process&, const Word&) {};
  TwinTransport* transport_of(std::uint64_t id) const;
  void came(TwinTransport& transport);
  void gone(TwinTransport& transport);
  std::shared_ptr<TwinView> view(std::uint64_t hash);
  void published(Process& process, const Word& word);

  // ---- links between hosts ----
  std::string host_name(int number) const { return options_.hosts == 1 ? "" : fmt::format("host{}", number); }
  bool cut(const std::string& from, const std::string& to) const { return cuts_.contains({from, to}); }
  void cut_link(const std::string& from, const std::string& to);
  void heal_all();
  void heal(const std::string& from, const std::string& to);

  /// Agents, coordinators and the store.
  Offices& offices() { return offices_; }
  const Offices& offices() const { return offices_; }

  // ---- records and checkpoints ----
  CheckpointFolder& checkpoints() { return checkpoints_; }
  record::MemoryLog& records(std::uint64_t worker);
  std::vector<record::MemoryLog> all_records() const;

  // ---- what happened ----
  /// Whose program runs; nullptr: nobody's.
  const Process* running = nullptr;
  template <class... Args>
  void note(const Process& process, fmt::format_string<Args...> format, Args&&... args) {
    if (options_.trace) trace(fmt::format("worker {}", process.id()), fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    if (options_.trace) trace("", fmt::format(format, std::forward<Args>(args)...));
  }
  const std::string& trace() const { return trace_; }
  /// A fault has hit a worker.
  void hit(Fault fault, Process& process);
  void fail(const std::string& why);
  void worker_failed(Process& process, const std::string& why);
  const std::string& failure() const { return failure_; }

 private:
  void trace(const std::string& who, const std::string& text);

  const WorldOptions options_;
  const Program program_;
  Scheduler scheduler_;
  std::uint64_t numbers_ = 0;
  int next_pid_ = 1000;
  std::string trace_, failure_;

  std::map<std::uint64_t, std::unique_ptr<Process>> processes_;  // by id, those that live
  std::vector<std::unique_ptr<Process>> ended_;
  std::map<std::uint64_t, TwinTransport*> transports_;  // by worker
  std::map<std::uint64_t, std::weak_ptr<TwinView>> views_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::map<std::pair<std::string, std::string>, std::uint64_t> cut_numbers_;
  std::map<std::uint64_t, std::uint64_t> stops_;  // by worker: how often it was stopped

  std::map<std::uint64_t, record::MemoryLog> records_;  // by worker
  CheckpointFolder checkpoints_;
  Offices offices_{*this};
};

}  // namespace pliant::sim
