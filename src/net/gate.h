// Connections between hosts, from the first byte to the moment when both sides know who the other one is.
// Threads: everything on the loop's. Any callback may destroy the object that calls it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "net/handshake.h"
#include "net/loop.h"
#include "net/tcp.h"
#include "net/trust.h"

namespace pliant::net {

/// A connection whose other end has proved that it belongs to the job.
struct Guest {
  Introduction who;
  Fd socket;
  std::vector<std::uint8_t> rest;  ///< what came behind the handshake already
  ConnectionKeys keys;             ///< of what follows it
};

struct GateOptions {
  std::size_t most_pending = 256;             ///< the oldest makes room
  std::chrono::milliseconds patience{2'000};  ///< for one handshake
  std::size_t accepts_per_turn = 64;          ///< others on the loop shall not starve
  /// May this caller come in? A reason if not. Empty: whoever knows the secret may.
  std::function<std::string(const Introduction&)> objection;
};

/// Answers at a port. Wrong, stale, silent or endless: closed, counted, and logged at most once a second.
class Gate {
 public:
  Gate(Loop& loop, Fd listener, Secret secret, std::string job, std::function<void(Guest)> on_guest,
       GateOptions options = {});
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  std::uint64_t refused() const;
  std::size_t pending() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

/// Calls at a port: one attempt. `on_end` gets the connection, or why there is none; it is not called after the
/// destructor.
class Call {
 public:
  /// The kernel repeats a lost first packet after 1, 3 and 7 seconds; on a link that comes back meanwhile, whoever
  /// calls again gets through sooner.
  static constexpr std::chrono::milliseconds kTimeToConnect{500};

  Call(Loop& loop, const Endpoint& to, const std::string& from_address, const Secret& secret, Introduction who,
       std::function<void(Result<Guest>)> on_end,
       std::chrono::milliseconds patience = std::chrono::milliseconds(2'000));
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace pliant::net
