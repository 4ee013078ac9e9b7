// Packet sockets on one host. One send is one packet; descriptors may travel along.
//
// Threads: a socket is used by one thread at a time. No call here blocks, except `receive_within`.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "wire/messages.h"

namespace pliant::net {

/// Most descriptors that one packet may carry.
inline constexpr int kMaxFds = 4;

/// "/path/to.sock" or "@name" for Linux's abstract namespace, which leaves no file behind.
/// Only processes of the same user are let in (checked against the kernel's word, SO_PEERCRED).
Result<Fd> listen_at(const std::string& address);
/// Code::peer_lost or not_found if nobody listens there; Code::io if it may work later (a full queue).
Result<Fd> connect_to(const std::string& address);

struct Peer {
  Fd socket;
  pid_t pid = 0;
};
/// A waiting connection, or nothing if there is none. Code::refused if it was another user's and is closed; Code::io if
/// this process has no descriptor for it: it goes on waiting.
Result<std::optional<Peer>> accept_from(const Fd& listener);
/// The process at the other end, by the kernel's word.
Result<pid_t> peer_pid(const Fd& socket);

struct Received {
  wire::Message message;
  std::vector<Fd> fds;
};

/// Sends a packet now: true if it is on its way, false if the buffer is full; a closed peer is Code::peer_lost.
Result<bool> try_send(const Fd& socket, const wire::Message& message, std::span<const int> fds = {});
/// The same, with a full buffer as an error of Code::io.
Status send(const Fd& socket, const wire::Message& message, std::span<const int> fds = {});
/// The next packet; nothing if there is none yet; Code::peer_lost at the end; Code::protocol for strangers' bytes;
/// Code::io if descriptors came with it for which this process has no room: it is still there, for another try.
Result<std::optional<Received>> receive(const Fd& socket);
/// Waits for the next packet; Code::io after `limit`.
Result<Received> receive_within(const Fd& socket, std::chrono::milliseconds limit);

}  // namespace pliant::net
