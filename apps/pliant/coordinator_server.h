// The coordinator's sockets: connections around the pure state machine membership::Coordinator.
//
// Strangers cannot harm the job: what does not decode, names another job or comes out of turn is refused, counted and
// logged at debug level. Connections that are neither a worker's nor an agent's are bounded in number and in time. A
// worker's place is for its own process and for those that it started, by the kernel's word; which process that is, the
// agent says. A worker may be faster than its agent: its request waits for that word. On other hosts there is no such
// word: whoever knows the job's secret may come in the name of any worker or host, and change the job.
//
// Threads: lives on its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/coordinator_chronicle.h"
#include "apps/pliant/outbox.h"
#include "apps/pliant/worker_processes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "membership/coordinator.h"
#include "net/gate.h"
#include "net/line.h"
#include "net/loop.h"
#include "wire/messages.h"

namespace pliant::cli {

struct ServerEvents {
  /// Is this process the job's agent?
  std::function<bool(pid_t pid)> is_agent;
  /// What agents on other hosts are to start.
  std::function<std::string()> charter;
  /// To be kept for the next coordinator, before anybody hears of it.
  std::function<void(const membership::Memory& memory)> remember;
  /// The newest good checkpoint that the job has written: its step, or why there is none. May read all of it.
  std::function<Result<std::uint64_t>()> newest_checkpoint;
  /// An answer binds the next coordinator too: `say` it once that one would know, or with false if that cannot be found
  /// out. Never called if there is another one already, which has not heard of it.
  std::function<void(std::function<void(bool sure)> say)> once_sure;
};

class CoordinatorServer {
 public:
  /// Serves `listener` on `loop`. Loop and chronicle must outlive it.
  CoordinatorServer(net::Loop& loop, Fd listener, const membership::CoordinatorOptions& options,
                    const std::optional<membership::Memory>& memory, ServerEvents events, Chronicle& chronicle);
  /// From now on also for workers and agents on other hosts, who know the secret and come to `listener`.
  void open_to_others(Fd listener, const net::Secret& secret);
  ~CoordinatorServer();
  CoordinatorServer(const CoordinatorServer&) = delete;
  CoordinatorServer& operator=(const CoordinatorServer&) = delete;

  /// A worker's process, as known from before.
  void know(std::uint64_t id, pid_t pid) { processes_.know(id, pid); }

  const membership::Coordinator& coordinator() const { return coordinator_; }
  /// True if the agent or a worker is connected, or a worker's process lives.
  bool attended() const;
  /// Connections and messages that were turned away.
  std::uint64_t refused() const { return refused_; }

 private:
  using Link = membership::Link;
  struct Connection {
    net::Line line;
    pid_t pid = 0;                            // by the kernel's word; 0 if it is on another host
    std::optional<net::Introduction> remote;  // who it is then, proved by the secret
    Nanos since{0};
    bool agent = false;
    std::optional<std::uint64_t> worker;  // once it has joined
    std::optional<wire::Join> request;    // waits until the agent has named the worker's process
    Outbox outbox;
    bool placed() const { return agent || worker; }
    bool waits() const { return !outbox.empty() || line.wants_to_write(); }  // for room to send
  };
  void accept_all();
  void admit(net::Guest guest);
  void add_connection(Connection connection);
  void make_room();
  void sweep();
  void pulse();
  void read_from(Link link);
  void on_message(Link link, const wire::Message& message);
  void on_join(Link link, const wire::Join& join);
  void place(Link link, const wire::Join& join);
  void on_hello(Link link, const wire::AgentHello& hello);
  void hear_last_words(std::uint64_t id);
  void on_started(const wire::Started& started);  // on this host
  void on_gone(std::uint64_t id);

  void deliver(const membership::Letters& letters);
  static wire::Message unsure(const wire::Message& message);
  void send_to(Link link, const wire::Message& message);
  void part_from(Link link);
  void flush_all();
  void refuse(Link link, const std::string& reason);
  void close(Link link);

  net::Loop& loop_;
  SteadyClock clock_;
  Fd listener_;
  membership::Coordinator coordinator_;
  ServerEvents events_;
  Chronicle& chronicle_;
  std::size_t most_strangers_;
  net::Loop::Timer timer_, pulse_;
  std::optional<net::Loop::Timer> flusher_;  // while any outbox holds something
  std::map<Link, Connection> connections_;   // in order of arrival
  Link next_link_ = 1;
  WorkerProcesses processes_;
  std::optional<membership::Memory> kept_;
  bool listening_ = true;
  std::unique_ptr<net::Gate> gate_;  // for other hosts
  std::uint64_t refused_ = 0;
};

/// An address for the coordinator of the job in `dir`: a socket in that directory, or a random abstract one if the path
/// is too long for the kernel.
std::string coordinator_address(const std::string& dir);

}  // namespace pliant::cli
