// The coordinator's sockets, and the processes of its host: who speaks, around agent/reception.h, which decides what
// they may say.
//
// Threads: lives on its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/chronicle.h"
#include "agent/reception.h"
#include "apps/pliant/outbox.h"
#include "apps/pliant/worker_processes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/gate.h"
#include "net/line.h"
#include "net/loop.h"
#include "wire/messages.h"

namespace pliant::cli {

/// What the job's process does for its server (agent::Desk says when).
struct ServerEvents {
  std::function<bool(pid_t pid)> is_agent;
  std::function<session::WorkerNote(std::uint64_t worker)> note_of;
  std::function<std::string()> charter;
  std::function<void(const membership::Memory& memory)> remember;
  std::function<Result<std::uint64_t>()> newest_checkpoint;
  std::function<void(std::function<void(bool sure)> say)> once_sure;
};

class CoordinatorServer final : private agent::Desk {
 public:
  /// Serves `listener` on `loop`. Loop and chronicle must outlive it.
  CoordinatorServer(net::Loop& loop, Fd listener, const membership::CoordinatorOptions& options,
                    const std::optional<membership::Memory>& memory, ServerEvents events, agent::Chronicle& chronicle);
  /// From now on also for workers and agents on other hosts, who know the secret and come to `listener`.
  void open_to_others(Fd listener, const net::Secret& secret);
  ~CoordinatorServer() override;
  CoordinatorServer(const CoordinatorServer&) = delete;
  CoordinatorServer& operator=(const CoordinatorServer&) = delete;

  void know(std::uint64_t worker, pid_t pid) override { processes_.know(worker, pid); }

  const membership::Coordinator& coordinator() const { return reception_.coordinator(); }
  /// True if the agent or a worker is connected, or a worker's process lives.
  bool attended() const { return processes_.any_runs() || reception_.anybody_placed(); }
  /// Connections and messages that were turned away.
  std::uint64_t refused() const { return reception_.refused(); }

 private:
  using Link = membership::Link;
  struct Connection {
    net::Line line;
    Outbox outbox;
    bool waits() const { return !outbox.empty() || line.wants_to_write(); }  // for room to send
  };
  void accept_all();
  void admit(net::Guest guest);
  void add(net::Line line, agent::Caller caller);
  void sweep();
  void read_from(Link link);
  void part_from(Link link);
  void flush_all();
  void close(Link link);

  // For the reception.
  void send(Link link, const wire::Message& message) override;
  void hang_up(Link link) override;
  void hear(Link link) override { read_from(link); }
  std::optional<std::uint64_t> owner_of(pid_t pid) const override { return processes_.owner_of(pid); }
  bool knows(std::uint64_t worker) const override { return processes_.knows(worker); }
  void started(std::uint64_t worker, pid_t pid) override { processes_.started(worker, pid); }
  void watch(std::uint64_t worker, pid_t pid) override { processes_.watch(worker, pid); }
  bool is_agent(pid_t pid) const override { return events_.is_agent(pid); }
  session::WorkerNote note_of(std::uint64_t worker) const override { return events_.note_of(worker); }
  std::string charter() const override { return events_.charter(); }
  void remember(const membership::Memory& memory) override { events_.remember(memory); }
  Result<std::uint64_t> newest_checkpoint() override { return events_.newest_checkpoint(); }
  void once_sure(std::function<void(bool sure)> say) override { events_.once_sure(std::move(say)); }

  net::Loop& loop_;
  SteadyClock clock_;
  Fd listener_;
  const ServerEvents events_;
  net::Loop::Timer timer_, pulse_;
  std::optional<net::Loop::Timer> flusher_;  // while any outbox holds something
  std::map<Link, Connection> connections_;
  Link next_link_ = 1;
  WorkerProcesses processes_;
  agent::Reception reception_;
  bool listening_ = true;
  std::unique_ptr<net::Gate> gate_;  // for other hosts
};

/// An address for the coordinator of the job in `dir`: a socket in that directory, or a random abstract one if the path
/// is too long for the kernel.
std::string coordinator_address(const std::string& dir);

}  // namespace pliant::cli
