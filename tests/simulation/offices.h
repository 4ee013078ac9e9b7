// Whoever runs a simulated job: an agent on every host, the launcher of a job on several, and coordinators, each a
// process that may be killed. What they do is the real code (agent/supervision.h, reception.h, tenure.h, election.h,
// membership/coordinator.h); here are the processes, connections and files around it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/ending.h"
#include "membership/coordinator.h"
#include "record/recorder.h"
#include "simulation/twin_store.h"
#include "simulation/twin_transport.h"

namespace pliant::sim {

class World;
class CoordinatorTwin;
class AgentTwin;

/// What is on a host's disk of the job.
struct HostFiles {
  struct Line {
    std::uint64_t id = 0;
    int pid = 0;
    bool told = false;
  };
  std::vector<Line> workers;               // that its agents have started
  std::optional<membership::Memory> note;  // a coordinator's of this host
  std::string place;                       // where the coordinator is, by the agent's last word
  int agent_pid = 0;
};

/// How a job ended, by the word of whoever ran it.
struct JobEnd {
  Outcome outcome = Outcome::running;
  std::string reason{};
};

class Offices {
 public:
  explicit Offices(World& world);
  ~Offices();

  void begin();
  /// Whoever ran the job has ended, and said how the job did.
  const std::optional<JobEnd>& end() const { return end_; }
  /// Somebody has heard that the job is over.
  bool over_said() const { return over_said_; }

  // ---- workers ----
  /// The number of a connection to the coordinator; 0: nobody answers.
  std::uint64_t connect(TwinTransport& transport, const std::string& host);
  void tell(std::uint64_t connection, wire::Message message);
  /// Its process has ended, or only its session: what is on the way still comes.
  void hang_up(const TwinTransport& transport);
  void ended(const Process& process, bool good);

  // ---- faults ----
  void kill_coordinator();
  /// Any of those who run the job; another one takes it up after a while.
  void kill_some_agent();
  /// SIGTERM to whoever runs the job.
  void stop_job();
  void resize(std::uint32_t workers);
  /// Of the job; nullptr: there is none just now.
  const membership::Coordinator* coordinator() const;
  TwinServer& server() { return server_; }

  std::vector<record::MemoryLog> records() const;

  // ---- for its agents and coordinators ----
  World& world() { return world_; }
  HostFiles& files(const std::string& host) { return files_[host]; }
  bool elects() const;
  record::MemoryLog& log(const std::string& name);
  std::string home() const;  // where the coordinator is if nobody elects one
  CoordinatorTwin* coordinator_at(const std::string& host) const;
  /// Starts one on this host, whose agent is `parent`.
  void start_coordinator(const std::string& host, const std::string& parent);
  void coordinator_ends(const std::string& host, bool in_order);
  void kill_coordinator_at(const std::string& host);
  std::uint64_t connect_agent(AgentTwin& agent);
  void close(std::uint64_t connection);
  void say(std::uint64_t connection, const wire::Message& message);
  void heard_over() { over_said_ = true; }
  /// It runs no more.
  void agent_ends(std::string name);
  bool all_parts_ended() const;
  /// By the launcher: they are told to, or are killed.
  void end_parts(bool at_once);

 private:
  struct Wire {
    std::string coordinator;          // its host
    TwinTransport* worker = nullptr;  // or
    std::string agent{};              // by name
    std::string host{};               // of that one
    InOrder to{}, from{};
  };
  void start_agent(const std::string& name, const std::string& host, bool part, bool launcher);
  void drop_agent(const std::string& name);
  void restart_agent(const std::string& name);
  void arrive(std::uint64_t connection, const wire::Message& message);
  void reach(std::uint64_t connection, const wire::Message& message);
  Nanos short_delay();

  World& world_;
  TwinServer server_;
  std::map<std::string, HostFiles> files_;                                // by host
  std::map<std::string, std::unique_ptr<CoordinatorTwin>> coordinators_;  // by host
  std::map<std::string, std::string> parents_;                            // whose child a host's coordinator is
  std::map<std::string, std::unique_ptr<AgentTwin>> agents_;              // by name
  std::map<std::string, bool> led_;                                       // the same: must run
  std::map<std::uint64_t, Wire> wires_;                                   // by connection
  std::map<std::string, record::MemoryLog> logs_;                         // by name
  std::optional<JobEnd> end_;
  bool over_said_ = false;
  int next_pid_ = 100'000;
};

}  // namespace pliant::sim
