// Bytes from several places into a connection, and out of one into several. Neither blocks.
//
// ThreadSanitizer is told what it cannot see: that bytes were read before they were sent, and that whoever has received
// something comes after whoever sent it through the same connection. What comes from a peer may be its answer to what
// was sent to it through another connection, which takes place in its process: connections with one `peer` (any address
// that stands for it, nullptr: none) are ordered as if it always were.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>

namespace pliant::net {

/// As sendmsg(2): how many bytes went, or -1 and errno. No SIGPIPE.
ssize_t send_parts(int socket, std::span<const iovec> parts, const void* peer = nullptr);
/// As readv(2).
ssize_t receive_parts(int socket, std::span<const iovec> parts, const void* peer = nullptr);

/// A number for what flows out of a TCP socket, or into it: the same at the end where it goes in as at the end where it
/// comes out, and another one for other connections and for the other direction. 0 if it has no such ends.
enum class Flow { out, in };
std::uint64_t flow_of(int socket, Flow flow);

}  // namespace pliant::net
