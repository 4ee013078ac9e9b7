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
#include "simulation/agent_twin.h"
#include "simulation/twin_store.h"
#include "simulation/twin_transport.h"

namespace pliant::sim {

class World;
class CoordinatorTwin;

/// What an agent's directory of the job holds.
struct JobFiles {
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
  /// The job has ended for long, and those who are left are where nobody runs it any more: they wait for somebody who
  /// does.
  bool only_orphans_left() const;
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
  /// By the agent's name.
  JobFiles& files(const std::string& agent) { return files_[agent]; }
  bool elects() const;
  record::MemoryLog& log(const std::string& name);
  /// Where the coordinator is if nobody elects one. A coordinator's place is the name of the agent whose child it is.
  std::string home() const;
  CoordinatorTwin* coordinator_at(const std::string& place) const;
  void start_coordinator(const std::string& place);
  enum class HowItEnds { killed, succeeded, lonely, over };
  void coordinator_ends(const std::string& place, HowItEnds how);
  void kill_coordinator_at(const std::string& place);
  std::uint64_t connect_agent(AgentTwin& agent);
  void close(std::uint64_t connection);
  /// By its coordinator: what that has said before arrives.
  void close_after_last_word(std::uint64_t connection);
  void say(std::uint64_t connection, const wire::Message& message);
  void heard_over() { over_said_ = true; }
  /// It runs no more.
  void agent_ends(const std::string& name);
  /// By the launcher: an agent is started on every host that has none.
  void lead_to_hosts();
  /// The same where it was killed, so that its workers are told to end; true if there is such a host.
  bool lead_to_killed();
  bool any_part_runs() const;
  /// By the launcher: they are told to, or are killed.
  void end_parts(bool at_once);

 private:
  struct Wire {
    std::string coordinator;          // its place
    TwinTransport* worker = nullptr;  // or
    std::string agent{};              // by name
    std::string host{};               // of that one
    InOrder to{}, from{};
  };
  bool job_is_gone(const std::string& place) const;
  std::string agent_of(const std::string& host) const;
  std::string host_of(const std::string& place) const;
  bool is_cut(const std::string& host, const std::string& place) const;
  void start_agent(AgentTwin::Setting setting);
  void drop_agent(const std::string& name, bool killed);
  void arrive(std::uint64_t connection, const wire::Message& message);
  void reach(std::uint64_t connection, const wire::Message& message);
  Nanos short_delay();

  World& world_;
  TwinServer server_;
  std::map<std::string, JobFiles> files_;                                 // by agent
  std::map<std::string, std::unique_ptr<CoordinatorTwin>> coordinators_;  // by place
  std::map<std::string, std::unique_ptr<AgentTwin>> agents_;              // by name
  struct Led {
    AgentTwin::Setting setting;
    Nanos due{0};  // not before
    bool killed = false;
  };
  std::map<std::string, Led> led_;                 // agents of a job on several hosts, by name
  std::map<std::uint64_t, Wire> wires_;            // by connection
  std::map<std::string, record::MemoryLog> logs_;  // by name
  std::optional<JobEnd> end_;
  Nanos ended_at_{0};
  bool over_said_ = false;
  int next_pid_ = 100'000;
};

}  // namespace pliant::sim
