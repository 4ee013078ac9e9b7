#include "net/socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"

namespace pliant::net {
namespace {

struct UnixAddress {
  sockaddr_un storage{};
  socklen_t length = 0;
};

Result<UnixAddress> parse(const std::string& text) {
  UnixAddress address;
  address.storage.sun_family = AF_UNIX;
  if (text.size() < 2 || text.size() >= sizeof(address.storage.sun_path))
    return Error{Code::invalid, fmt::format("'{}' is not a socket address of 2 to {} characters", text,
                                            sizeof(address.storage.sun_path) - 1)};
  std::memcpy(address.storage.sun_path, text.data(), text.size());
  auto length = offsetof(sockaddr_un, sun_path) + text.size();
  if (text[0] == '@')
    address.storage.sun_path[0] = '\0';
  else
    ++length;  // the closing zero belongs to a path
  address.length = static_cast<socklen_t>(length);
  return address;
}

/// The kernel refuses packets that are larger than this buffer; its own size is less than the largest message.
void make_room_for_packets(const Fd& socket) {
  int bytes = 2 * wire::kMaxPacket;
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

Result<Fd> open_socket() {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return errno_error("socket");
  make_room_for_packets(socket);
  return socket;
}

Result<ucred> credentials(int socket) {
  ucred who{};
  socklen_t length = sizeof(who);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return errno_error("SO_PEERCRED");
  if (who.uid != geteuid()) return Error{Code::refused, fmt::format("connection of another user ({})", who.uid)};
  return who;
}

}  // namespace

Result<Fd> listen_at(const std::string& address) {
  auto where = parse(address);
  if (!where.ok()) return where.error();
  auto socket = open_socket();
  if (!socket.ok()) return socket.error();
  const auto* raw = reinterpret_cast<const sockaddr*>(&where.value().storage);
  if (bind(socket.value().get(), raw, where.value().length) != 0) return errno_error("cannot listen at " + address);
  if (::listen(socket.value().get(), SOMAXCONN) != 0) return errno_error("cannot listen at " + address);
  return socket;
}

Result<Fd> connect_to(const std::string& address) {
  auto where = parse(address);
  if (!where.ok()) return where.error();
  auto socket = open_socket();
  if (!socket.ok()) return socket.error();
  const auto* raw = reinterpret_cast<const sockaddr*>(&where.value().storage);
  if (::connect(socket.value().get(), raw, where.value().length) != 0) {
    auto error = errno_error("cannot connect to " + address);
    if (errno == ECONNREFUSED) error.code = Code::peer_lost;
    return error;
  }
  auto who = credentials(socket.value().get());
  if (!who.ok()) return who.error();
  return socket;
}

Result<std::optional<Peer>> accept_from(const Fd& listener) {
  Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return std::optional<Peer>();
    return errno_error("accepting a connection");
  }
  make_room_for_packets(socket);
  auto who = credentials(socket.get());
  if (!who.ok()) return who.error();
  return std::optional<Peer>(Peer{std::move(socket), who.value().pid});
}

Result<pid_t> peer_pid(const Fd& socket) {
  auto who = credentials(socket.get());
  if (!who.ok()) return who.error();
  return who.value().pid;
}

Result<bool> try_send(const Fd& socket, const wire::Message& message, std::span<const int> fds) {
  PLIANT_ASSERT(fds.size() <= kMaxFds);
  auto packet = wire::encode(message);
  iovec part{packet.data(), packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    auto* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do sent = sendmsg(socket.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  if (sent >= 0) return true;
  if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == ETOOMANYREFS) return false;
  if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
    return Error{Code::peer_lost, "the other end closed the connection"};
  return errno_error("send");
}

Status send(const Fd& socket, const wire::Message& message, std::span<const int> fds) {
  auto sent = try_send(socket, message, fds);
  if (!sent.ok()) return sent.error();
  if (!sent.value()) return Error{Code::io, "send: the buffer is full"};
  return {};
}

namespace {

/// Owns what came with a packet.
std::vector<Fd> take_descriptors(msghdr& header) {
  std::vector<Fd> fds;
  for (auto* rights = CMSG_FIRSTHDR(&header); rights; rights = CMSG_NXTHDR(&header, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    auto count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

/// Looks at the next packet without taking it, descriptors included.
ssize_t look(const Fd& socket, msghdr& header) {
  ssize_t size = 0;
  bool again = true;
  do size = recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | MSG_PEEK);
  // A peer that went without having read everything is reported once; what it had said is still there.
  while (size < 0 && (errno == EINTR || (errno == ECONNRESET && std::exchange(again, false))));
  return size;
}

/// Takes the packet that was looked at, without its descriptors: those are here already.
void take_packet(const Fd& socket) {
  char byte = 0;
  while (recv(socket.get(), &byte, 1, MSG_DONTWAIT) < 0 && (errno == EINTR || errno == ECONNRESET)) {
  }
}

}  // namespace

Result<std::optional<Received>> receive(const Fd& socket) {
  std::array<std::uint8_t, wire::kMaxPacket> packet;
  iovec part{packet.data(), packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  auto size = look(socket, header);
  if (size < 0) {
    if (errno == EAGAIN) return std::optional<Received>();
    if (errno == ECONNRESET) return Error{Code::peer_lost, "the other end is gone"};
    return errno_error("receive");
  }
  Received received;
  received.fds = take_descriptors(header);
  if (size == 0) return Error{Code::peer_lost, "the other end closed the connection"};
  if ((header.msg_flags & MSG_CTRUNC) && received.fds.size() < kMaxFds)
    return Error{Code::io, "receive: no free descriptors for what came along"};
  take_packet(socket);
  if (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) return Error{Code::protocol, "packet too long"};
  auto message = wire::decode({packet.data(), static_cast<std::size_t>(size)});
  if (!message.ok()) return message.error();
  received.message = std::move(message).value();
  return std::optional<Received>(std::move(received));
}

Result<Received> receive_within(const Fd& socket, std::chrono::milliseconds limit) {
  SteadyClock clock;
  auto end = clock.now() + limit;
  for (;;) {
    auto received = receive(socket);
    if (!received.ok()) return received.error();
    if (received.value()) return std::move(*received.value());
    auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.now());
    if (left.count() <= 0) return Error{Code::io, fmt::format("no answer within {} ms", limit.count())};
    pollfd waiting{socket.get(), POLLIN, 0};
    poll(&waiting, 1, static_cast<int>(left.count()));
  }
}

}  // namespace pliant::net
