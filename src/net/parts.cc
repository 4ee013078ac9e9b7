#include "net/parts.h"

#include <sys/socket.h>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

extern "C" {
void __tsan_read_range(void* address, unsigned long size);   // NOLINT(bugprone-reserved-identifier)
void __tsan_write_range(void* address, unsigned long size);  // NOLINT(bugprone-reserved-identifier)
}
#endif

namespace pliant::net {
namespace {

msghdr message_of(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  return message;
}

}  // namespace

#ifndef __SANITIZE_THREAD__

ssize_t send_parts(int socket, std::span<const iovec> parts) {
  auto message = message_of(parts);
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t receive_parts(int socket, std::span<const iovec> parts) {
  auto message = message_of(parts);
  return recvmsg(socket, &message, MSG_DONTWAIT);
}

#else

// Its own wrappers note reads after the bytes have gone, when an answer to them may have been received already.
static char all_connections;

ssize_t send_parts(int socket, std::span<const iovec> parts) {
  for (const auto& part : parts) __tsan_read_range(part.iov_base, part.iov_len);
  __tsan_release(&all_connections);
  auto message = message_of(parts);
  return syscall(SYS_sendmsg, socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t receive_parts(int socket, std::span<const iovec> parts) {
  auto message = message_of(parts);
  auto got = syscall(SYS_recvmsg, socket, &message, MSG_DONTWAIT);
  __tsan_acquire(&all_connections);
  auto left = static_cast<std::size_t>(std::max(got, 0L));
  for (const auto& part : parts) {
    auto size = std::min(left, part.iov_len);
    __tsan_write_range(part.iov_base, size);
    left -= size;
  }
  return got;
}

#endif

}  // namespace pliant::net
