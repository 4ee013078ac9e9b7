// Connections to a worker's socket that have not said yet who they are. They are bounded in number: the oldest makes
// room, because members greet at once.
//
// While this process has no free descriptors, who waits goes on waiting, without keeping the loop busy.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "net/loop.h"
#include "net/socket.h"
#include "wire/messages.h"

namespace pliant::collective {

/// Lives on the loop's thread, but for refused().
class Strangers {
 public:
  static constexpr std::size_t kMost = 64;

  /// Somebody greets; `fds` came with it. An error says why it is turned away. Else the socket, whose events nobody
  /// watches any more, is taken.
  using OnGreeting = std::function<Status(net::Peer& peer, const wire::PeerHello& hello, std::vector<Fd> fds)>;
  Strangers(net::Loop& loop, Fd listener, OnGreeting on_greeting)
      : loop_(loop), listener_(std::move(listener)), on_greeting_(std::move(on_greeting)) {}
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  /// To be called when the loop begins to run, and every few milliseconds.
  void serve();
  /// Connections that were turned away. From any thread.
  std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  struct Stranger {
    net::Peer peer;
    bool full = false;  // a packet waits for free descriptors
  };
  void accept_all();
  void add(net::Peer peer);
  void read(std::uint64_t number);
  void refuse(const std::string& why);

  net::Loop& loop_;
  const Fd listener_;  // may be none
  const OnGreeting on_greeting_;
  std::map<std::uint64_t, Stranger> strangers_;  // by age
  std::uint64_t next_ = 0;
  bool accepting_ = false;  // the listener is watched; not while there are no free descriptors
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace pliant::collective
