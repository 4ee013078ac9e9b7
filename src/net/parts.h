// Bytes from several places into a connection, and out of one into several. Neither blocks.
//
// ThreadSanitizer is told what it cannot see: that bytes were read before they were sent, and that whoever has received
// something comes after whoever sent it, wherever that was.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <span>

namespace pliant::net {

/// As sendmsg(2): how many bytes went, or -1 and errno. No SIGPIPE.
ssize_t send_parts(int socket, std::span<const iovec> parts);
/// As readv(2).
ssize_t receive_parts(int socket, std::span<const iovec> parts);

}  // namespace pliant::net
