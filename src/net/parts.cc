#include "net/parts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "base/hash.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

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

using EndOf = int (*)(int, sockaddr*, socklen_t*);

/// "10.0.0.1 4711", or nothing if it is not of TCP.
std::string end_of(int socket, EndOf get) {
  sockaddr_storage end{};
  socklen_t size = sizeof(end);
  if (get(socket, reinterpret_cast<sockaddr*>(&end), &size) != 0) return {};
  char text[INET6_ADDRSTRLEN] = {};
  if (end.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(end);
    return fmt::format("{} {}", inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text)), v4.sin_port);
  }
  if (end.ss_family != AF_INET6) return {};
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(end);
  return fmt::format("{} {}", inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text)), v6.sin6_port);
}

}  // namespace

std::uint64_t flow_of(int socket, Flow flow) {
  auto here = end_of(socket, getsockname), there = end_of(socket, getpeername);
  if (here.empty() || there.empty()) return 0;
  return hash_name(flow == Flow::out ? here + " to " + there : there + " to " + here);
}

#ifndef __SANITIZE_THREAD__

ssize_t send_parts(int socket, std::span<const iovec> parts, const void* /*peer*/) {
  auto message = message_of(parts);
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t receive_parts(int socket, std::span<const iovec> parts, const void* /*peer*/) {
  auto message = message_of(parts);
  return recvmsg(socket, &message, MSG_DONTWAIT);
}

#else

// Its own wrappers note reads after the bytes have gone, when an answer to them may have been received already.
// Few connections share a variable by chance: that hides races of theirs, and reports none that is not there.
static std::array<char, 65536> flows;
static char& variable_of(int socket, Flow flow) { return flows[flow_of(socket, flow) % flows.size()]; }

ssize_t send_parts(int socket, std::span<const iovec> parts, const void* peer) {
  for (const auto& part : parts) __tsan_read_range(part.iov_base, part.iov_len);
  __tsan_release(&variable_of(socket, Flow::out));
  if (peer) __tsan_release(const_cast<void*>(peer));
  auto message = message_of(parts);
  return syscall(SYS_sendmsg, socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t receive_parts(int socket, std::span<const iovec> parts, const void* peer) {
  auto message = message_of(parts);
  auto got = syscall(SYS_recvmsg, socket, &message, MSG_DONTWAIT);
  __tsan_acquire(&variable_of(socket, Flow::in));
  if (peer) __tsan_acquire(const_cast<void*>(peer));
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
