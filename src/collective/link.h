// What a worker knows of one neighbour: its connection, what waits to be sent there, and how it was lost.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "wire/messages.h"

namespace pliant::collective {

struct PeerLoss {
  std::uint64_t id = 0;
  bool orderly = false;  ///< it had said goodbye
  bool proven = false;   ///< the kernel says that its process is gone. Proof may follow as a second loss.
  std::string how;
  /// Proven, or orderly: the view that it was in. May be told later.
  wire::LastView view{};
};

/// A message on its way, with its descriptors; shared, because one goes to every peer.
struct Parcel {
  wire::Message message;
  std::vector<Fd> fds;
};

struct Link {
  static constexpr Nanos kReconnect = std::chrono::milliseconds(100);  ///< between attempts to reach one that was lost

  wire::Member member;
  std::list<std::shared_ptr<const Parcel>> outbox;  ///< empty, it takes no memory: the dead stay known
  Fd socket;                                        ///< on this host
  pid_t pid = 0;
  bool remote = false;  ///< on another host
  bool greeted = false;
  bool connects = false;  ///< from here
  bool retry = false;     ///< connect again, from retry_at on
  bool full = false;      ///< a packet waits for free descriptors
  bool orderly = false;
  bool lost = false;
  bool proven = false;
  bool settled_without = false;  ///< proven dead, and of no interest to the view that was settled in last
  Nanos retry_at{0};
  std::string how;
  wire::LastView last_view;  ///< of one that is proven dead, or has said goodbye

  PeerLoss loss() const { return {member.id, orderly, proven, how, last_view}; }
  /// It was in this view. True if that is news.
  bool note_view(wire::LastView view);
  /// This process is the one that is known, or none is known yet.
  bool may_be(pid_t process) const { return pid == 0 || pid == process; }
  /// A connection will be tried again as long as its process may live, if this side makes it. Who was never connected
  /// is awaited by others: it is tried at once.
  void connect_later(Nanos now);
  bool due(Nanos now) const { return retry && now >= retry_at; }
  /// Sends what the socket of a neighbour that has greeted takes now; the rest waits.
  Status flush();
  /// Its process has ended. It may come back as another one, of which nothing is known yet.
  void renew();
};

}  // namespace pliant::collective
