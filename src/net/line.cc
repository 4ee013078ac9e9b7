#include "net/line.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "net/tcp.h"

namespace pliant::net {
namespace {

/// Whatever a connection fails of, it is lost.
Error closed() { return Error{Code::peer_lost, "this end closed the connection"}; }

}  // namespace

Line Line::local(Fd socket) {
  Line line;
  line.socket_ = std::move(socket);
  return line;
}

Line Line::remote(Fd socket, std::vector<std::uint8_t> received, ConnectionKeys keys) {
  Line line;
  line.socket_ = std::move(socket);
  line.local_ = false;
  line.sealer_.emplace(std::move(keys.send));
  line.opener_.emplace(std::move(keys.receive));
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
  const auto part = std::as_bytes(std::span(packet));
  auto at = unsent_.size();
  unsent_.resize(at + RecordSealer::size_of(packet.size()));
  sealer_->seal({&part, 1}, std::span(unsent_).subspan(at));
  auto flushed = flush();
  if (!flushed.ok()) return flushed;
  return true;
}

bool Line::has_room_for(std::size_t packet) const {
  return unsent_.size() - sent_ + RecordSealer::size_of(packet) <= kMostUnsent;
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
    auto message = next_record();
    if (!message.ok() || message.value()) return message;
    auto more = read_more();
    if (!more.ok()) return more.error();
    if (!more.value()) return std::optional<Received>();
  }
}

/// From what was received already. A record that is refused stays, and is refused again.
Result<std::optional<Received>> Line::next_record() {
  std::span<const std::uint8_t> rest = std::span(received_).subspan(taken_);
  if (rest.size() < RecordKey::kHead) return std::optional<Received>();
  auto length = RecordOpener::length_in(rest.first<RecordKey::kHead>(), wire::kMaxPacket);
  if (!length.ok()) return length.error();
  rest = rest.subspan(RecordKey::kHead);
  if (rest.size() < length.value()) return std::optional<Received>();
  std::vector<std::uint8_t> packet(length.value() - RecordKey::kTag);
  PLIANT_TRY(opener_->open(rest.first(length.value()), reinterpret_cast<std::byte*>(packet.data())));
  auto message = wire::decode(packet);
  if (!message.ok()) return message.error();
  taken_ += RecordKey::kHead + length.value();
  return std::optional<Received>(Received{std::move(message).value(), {}});
}

/// REQUIRES: no whole record is left, so what is kept is less than one. False if there is nothing to read yet.
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
