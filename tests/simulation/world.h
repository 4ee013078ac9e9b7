// A whole job in one thread, on simulated time: hosts and the links between them, workers that run real sessions, the
// real coordinator, an agent per host, and a store outside of the job. Everything follows from the seed.
#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "membership/coordinator.h"
#include "record/recorder.h"
#include "simulation/process.h"
#include "simulation/scheduler.h"
#include "simulation/twin_transport.h"

namespace pliant::sim {

struct WorldOptions {
  std::uint64_t seed = 0;
  int hosts = 1;
  int workers = 3;     ///< at the start
  bool store = false;  ///< outside of the job
  bool trace = false;  ///< keep a line for every event
  Coverage* coverage = nullptr;
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

  /// Starts agents and coordinator; the coordinator has workers started.
  void begin();
  /// The job has said how it ended, and no worker is left.
  bool over() const;

  // ---- workers ----
  std::vector<Process*> workers();  // that live
  Process* worker(std::uint64_t id);
  bool lives(std::uint64_t id) const;
  std::uint64_t last_view_of(std::uint64_t id) const;
  /// The number of the newest view that anybody knows to be in force, or did.
  std::uint64_t newest_view() const;
  void spawn(std::uint64_t id, const std::string& host);
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

  // ---- coordinator, agents, store ----
  std::uint64_t connect_to_coordinator(TwinTransport& transport, const std::string& host);
  void tell_coordinator(std::uint64_t connection, wire::Message message);
  void kill_coordinator();
  void resize(std::uint32_t workers);
  membership::Coordinator* coordinator() { return coordinator_ ? coordinator_.get() : nullptr; }
  Result<membership::Attempt> ask_store(const std::string& host, const std::string& key, const std::string& text);
  void set_store_silent(bool silent) { store_silent_ = silent; }
  /// How the job ended, by its coordinator's word to the agents.
  const std::optional<wire::Over>& verdict() const { return verdict_; }

  // ---- records ----
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
  struct Connection {
    TwinTransport* worker = nullptr;  // or
    std::string agent{};              // whose host
    bool is_agent = false;
    std::string host{};
    InOrder to{}, from{};
  };
  void trace(const std::string& who, const std::string& text);
  void start_coordinator();
  void keep_coordinator();
  void deliver(const membership::Letters& letters);
  void to_agent(const std::string& host, const wire::Message& message);
  void connect_agent(const std::string& host);
  void tell_from_agent(const std::string& host, const wire::Message& message);
  void close_connection(std::uint64_t connection);
  Nanos short_delay() { return rng().between(microseconds(20), milliseconds(1)); }

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

  std::unique_ptr<membership::Coordinator> coordinator_;
  std::string coordinator_host_;
  std::optional<membership::Memory> memory_;  // what a coordinator leaves to the next one
  std::map<std::uint64_t, Connection> connections_;
  /// What an agent knows of a worker that it has started, until the coordinator knows of its end.
  struct Charge {
    int pid = 0;
    std::optional<wire::Ended> ended{};
  };
  std::map<std::string, std::map<std::uint64_t, Charge>> charges_;  // by host and id
  std::map<std::string, std::uint64_t> agent_connections_;
  std::map<std::string, std::string> store_;
  bool store_silent_ = false;
  std::map<std::uint64_t, record::MemoryLog> records_;  // by worker
  record::MemoryLog agent_records_{"agent", {}};
  std::optional<wire::Over> verdict_;
};

}  // namespace pliant::sim
