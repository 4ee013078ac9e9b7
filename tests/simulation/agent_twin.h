// A simulated agent's process, or a launcher's: the real supervision and election, and a hold on the coordinator as
// that of `pliant run`.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent/election.h"
#include "agent/event_log.h"
#include "agent/lead.h"
#include "agent/restarts.h"
#include "agent/supervision.h"
#include "simulation/scheduler.h"

namespace pliant::sim {

class Offices;

class AgentTwin final : private agent::Driver {
 public:
  struct Setting {
    std::string name;  ///< of this process
    std::string host;
    bool part = false;      ///< of a job on several hosts
    bool launcher = false;  ///< which has no workers, and waits for those who have
    int pid = 0;
  };
  AgentTwin(Offices& offices, Setting setting);
  ~AgentTwin() override;

  const Setting& setting() const { return setting_; }
  void begin();
  void on_message(std::uint64_t connection, const wire::Message& message);
  void on_closed(std::uint64_t connection);
  /// A worker of this host has ended; how, this agent knows only of those that it has started.
  void on_ended(std::uint64_t worker, const agent::Ending& ending);
  void on_coordinator_death();
  /// SIGTERM.
  void terminate();
  /// How the job ended, in its word.
  Outcome outcome() const;
  const agent::JobWord& word() const { return setting_.launcher ? lead_.word() : supervision_.word(); }

 private:
  void tick();
  void keep_coordinator();
  void connect();
  void elect();
  void watch_job(const wire::Message& message);
  bool has_ended();
  bool launcher_has_ended();
  void stop_job(wire::Stopping how);

  // ---- agent::Driver ----
  Result<pid_t> start(std::uint64_t id) override;
  void signal(std::uint64_t id, int number) override;
  bool send(const wire::Message& message) override;
  std::optional<Nanos> missed_for() const override;
  void drain() override {}
  session::WorkerNote note_of(std::uint64_t id) const override;
  void note_told(std::uint64_t id) override;
  void forget(std::uint64_t id) override;
  std::string last_words(std::uint64_t /*id*/) override { return ""; }
  void say(const std::string& lines) override;
  void note(const std::string& what, std::uint64_t worker, const std::string& text) override;

  Offices& offices_;
  const Setting setting_;
  agent::EventLog log_;
  agent::Supervision supervision_;
  agent::Lead lead_;  // a launcher's
  agent::Restarts restarts_;
  std::optional<agent::Election> election_;
  std::string place_;  // the coordinator's (Offices::home); "?": not known yet
  bool starts_ = false;
  std::uint64_t connection_ = 0;
  Nanos missed_since_;
  std::set<std::uint64_t> children_;
  std::optional<Nanos> ending_since_, told_parts_;  // a launcher
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace pliant::sim
