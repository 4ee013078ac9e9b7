// Connections between the workers of one view on one host: they carry segments, and their end is the first sign of a
// death. One thread per mesh serves them; nothing here is on the step path.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "net/loop.h"
#include "net/socket.h"
#include "wire/messages.h"

namespace pliant::collective {

/// The members of a view as a collective sees them.
struct Team {
  std::string job;
  std::uint64_t view_hash = 0;
  std::vector<wire::Member> members;  ///< in rank order
  int rank = 0;
  int size() const { return static_cast<int>(members.size()); }
};

/// Called on the mesh's thread.
struct MeshEvents {
  /// A peer's control segment arrived. An error refuses the peer.
  std::function<Status(int rank, Fd control)> on_hello;
  std::function<void(int rank, const wire::RegionNotice& notice, std::vector<Fd> fds)> on_region;
  /// A peer is gone; `orderly` if it had said goodbye.
  std::function<void(int rank, bool orderly, const std::string& how)> on_lost;
};

class Mesh {
 public:
  /// Starts to connect: to every lower rank, and from every higher one. `listener` is the socket at this member's
  /// address, `control` its control segment (kept by the caller).
  Mesh(Team team, Fd listener, int control, MeshEvents events);
  /// Stops the thread. Peers see the connection's end.
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  /// Waits until every peer is connected; names those that are missing otherwise.
  Status wait_formed(std::chrono::milliseconds limit);
  /// Sends to every peer, soon and in order; the descriptors are duplicated before the call returns.
  void send_to_all(wire::Message message, const std::vector<int>& fds);
  /// Tells every peer that this member leaves in good order, and returns when that is sent.
  void say_goodbye();
  /// Connections from strangers that were turned away.
  std::uint64_t refused() const;

 private:
  struct Parcel {
    wire::Message message;
    std::vector<Fd> fds;
  };
  struct Link {
    std::deque<std::shared_ptr<const Parcel>> outbox;  // shared: one parcel goes to every peer
    Fd socket;
    Fd pidfd;
    bool greeted = false;
    bool retry = false;
    bool orderly = false;
    bool lost = false;
  };
  void connect_to(int rank);
  void serve_timer();
  void accept_all();
  void read_stranger(std::uint64_t number);
  void read_peer(int rank);
  void adopt(int rank, Fd socket, pid_t pid, Fd control);
  void flush(int rank);
  void lose(int rank, const std::string& how);
  void refuse(const std::string& why);
  Status send_hello(const Fd& socket);

  const Team team_;
  Fd listener_;
  const int control_;
  const MeshEvents events_;
  net::Loop loop_;

  // Used by the loop's thread only.
  std::vector<Link> links_;
  std::map<std::uint64_t, net::Peer> strangers_;  // by age
  std::uint64_t next_stranger_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int connected_ = 0;          // guarded by mutex_
  std::string failure_;        // guarded by mutex_
  std::vector<bool> present_;  // guarded by mutex_
  std::uint64_t refused_ = 0;  // guarded by mutex_

  std::thread thread_;  // last: everything above exists before it runs
};

}  // namespace pliant::collective
