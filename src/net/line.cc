#include "net/line.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "net/tcp.h"

namespace pliant::net {
namespace {

using Length = std::uint32_t;

/// Whatever a connection fails of, it is lost.
Error closed() { return Error{Code::peer_lost, "this end closed the connection"}; }

}  // namespace

Line Line::local(Fd socket) {
  Line line;
  line.socket_ = std::move(socket);
  return line;
}

Line Line::remote(Fd socket, std::vector<std::uint8_t> received) {
  Line line;
  line.socket_ = std::move(socket);
  line.local_ = false;
  line.received_ = std::move(received);
  return line;
}

void Line::close() {
  bool local = local_;
  *this = Line();
  local_ = local;
}

// ---- sending ----

Result<bool> Line::try_send(const wire::Message& message, std::span<const int> fds) {
  if (!socket_) return closed();
  if (local_) return net::try_send(socket_, message, fds);
  PLIANT_ASSERT(fds.empty());
  auto packet = wire::encode(message);
  if (!has_room_for(packet.size())) {
    auto flushed = flush();
    if (!flushed.ok()) return flushed;
    if (!has_room_for(packet.size())) return false;
  }
  auto length = static_cast<Length>(packet.size());
  const auto* head = reinterpret_cast<const std::uint8_t*>(&length);
  unsent_.insert(unsent_.end(), head, head + sizeof(length));
  unsent_.insert(unsent_.end(), packet.begin(), packet.end());
  auto flushed = flush();
  if (!flushed.ok()) return flushed;
  return true;
}

bool Line::has_room_for(std::size_t packet) const {
  return unsent_.size() - sent_ + sizeof(Length) + packet <= kMostUnsent;
}

bool Line::wants_to_write() const { return sent_ < unsent_.size(); }

Result<bool> Line::flush() {
  if (!socket_) return closed();
  while (wants_to_write()) {
    auto sent = ::send(socket_.get(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)) break;
    if (sent < 0) return lost_connection(errno);
    sent_ += static_cast<std::size_t>(sent);
  }
  if (2 * sent_ >= unsent_.size()) {  // no more is moved than was sent
    unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  return !wants_to_write();
}

// ---- receiving ----

Result<std::optional<Received>> Line::receive() {
  if (!socket_) return closed();
  if (local_) return net::receive(socket_);
  for (;;) {
    auto message = next_frame();
    if (!message.ok() || message.value()) return message;
    auto more = read_more();
    if (!more.ok()) return more.error();
    if (!more.value()) return std::optional<Received>();
  }
}

/// From what was received already. A frame that is refused stays, and is refused again.
Result<std::optional<Received>> Line::next_frame() {
  std::span<const std::uint8_t> rest = std::span(received_).subspan(taken_);
  Length length = 0;
  if (rest.size() < sizeof(length)) return std::optional<Received>();
  std::memcpy(&length, rest.data(), sizeof(length));
  if (length > wire::kMaxPacket) return Error{Code::protocol, fmt::format("a message of {} bytes", length)};
  if (rest.size() - sizeof(length) < length) return std::optional<Received>();
  auto message = wire::decode(rest.subspan(sizeof(length), length));
  if (!message.ok()) return message.error();
  taken_ += sizeof(length) + length;
  return std::optional<Received>(Received{std::move(message).value(), {}});
}

/// REQUIRES: no whole frame is left, so what is kept is less than one. False if there is nothing to read yet.
Result<bool> Line::read_more() {
  received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  std::array<std::uint8_t, wire::kMaxPacket> chunk;
  ssize_t size = 0;
  do size = recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return false;
  if (size < 0) return lost_connection(errno);
  if (size == 0 && received_.empty()) return Error{Code::peer_lost, "the other end closed the connection"};
  if (size == 0) return Error{Code::peer_lost, "the other end closed the connection in the middle of a message"};
  received_.insert(received_.end(), chunk.begin(), chunk.begin() + size);
  return true;
}

}  // namespace pliant::net
