// The coordinator's sockets: connections around the pure state machine membership::Coordinator.
//
// Strangers cannot harm the job: what does not decode, names another job or comes out of turn is refused, counted and
// logged at debug level. Connections that have not joined are bounded in number and in time.
//
// Threads: lives on its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "membership/coordinator.h"
#include "net/loop.h"
#include "net/socket.h"
#include "wire/messages.h"

namespace pliant::cli {

struct CoordinatorEvents {
  /// The worker that a process belongs to, if any: only such a process may take that worker's seat.
  std::function<std::optional<int>(pid_t pid)> worker_of;
  std::function<void(int rank, const wire::Progress& progress)> on_progress;
  std::function<void(int rank, const wire::Complaint& complaint)> on_complaint;
};

class CoordinatorServer {
 public:
  /// Serves `listener` on `loop`, which must outlive it.
  CoordinatorServer(net::Loop& loop, Fd listener, const membership::CoordinatorOptions& options,
                    CoordinatorEvents events);
  ~CoordinatorServer();
  CoordinatorServer(const CoordinatorServer&) = delete;
  CoordinatorServer& operator=(const CoordinatorServer&) = delete;

  /// Takes in all that has arrived by now.
  void drain();
  /// The view can no longer form: refuses those who wait for it and those who come later.
  void give_up(const std::string& reason);

  /// True once all workers have joined and were sent the view.
  bool formed() const { return coordinator_.running(); }
  bool has_joined(int rank) const;
  /// True if anybody has joined and is still connected.
  bool has_joined() const;
  /// Connections and messages that were turned away.
  std::uint64_t refused() const { return refused_; }

 private:
  using Link = membership::Link;
  struct Connection {
    Fd socket;
    pid_t pid = 0;
    std::optional<int> worker;  // the one that its process belongs to
    Nanos since{0};
    std::optional<int> rank;  // once it has joined
  };
  void accept_all();
  void read_from(Link link, int most);
  void on_message(Link link, const wire::Message& message);
  void on_join(Link link, const wire::Join& join);
  std::string objection_to(const Connection& connection, const wire::Join& join) const;
  void send_to(Link link, const wire::Message& message);
  void refuse(Link link, const std::string& reason);
  void close(Link link);
  void close_slow_ones();
  void make_room();

  net::Loop& loop_;
  SteadyClock clock_;
  Fd listener_;
  membership::Coordinator coordinator_;
  CoordinatorEvents events_;
  std::size_t most_unjoined_;
  net::Loop::Timer timer_;
  std::map<Link, Connection> connections_;  // in order of arrival
  Link next_link_ = 1;
  std::optional<std::string> given_up_;
  bool listening_ = true;
  std::uint64_t refused_ = 0;
};

/// An address for the coordinator of the job in `dir`: a socket in that directory, or an abstract one if the path is
/// too long for the kernel.
std::string coordinator_address(const std::string& dir);

}  // namespace pliant::cli
