// A connection that carries messages, whichever way: packets of a Unix socket, which descriptors may travel with, or
// sealed records (sealed_records.h), one for each packet, of a TCP stream that has been through the handshake.
// Threads: used by one thread at a time. No call blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "net/sealed_records.h"
#include "net/socket.h"
#include "wire/messages.h"

namespace pliant::net {

class Line {
 public:
  Line() = default;
  static Line local(Fd socket);
  /// `received`: what came behind the handshake already.
  static Line remote(Fd socket, std::vector<std::uint8_t> received, ConnectionKeys keys);

  explicit operator bool() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }
  bool is_local() const { return local_; }
  void close();

  /// True: it is on its way, or will be once flush() is called often enough. False: the line is full, try again later.
  /// A closed peer is Code::peer_lost. REQUIRES: no descriptors unless is_local().
  Result<bool> try_send(const wire::Message& message, std::span<const int> fds = {});
  /// Sends what is left of earlier messages; true if nothing is left. To be called when the socket can be written.
  Result<bool> flush();
  bool wants_to_write() const;
  /// The next message; nothing if there is none yet; Code::peer_lost at the end; Code::protocol for strangers' bytes.
  /// Some whole message may be there although the socket has nothing to read: to be called until it gives nothing.
  Result<std::optional<Received>> receive();

 private:
  static constexpr std::size_t kMostUnsent = 1 << 20;
  bool has_room_for(std::size_t packet) const;
  Result<std::optional<Received>> next_record();
  Result<bool> read_more();

  Fd socket_;
  bool local_ = true;
  std::optional<RecordSealer> sealer_;  // of remote lines, and so is the next
  std::optional<RecordOpener> opener_;
  std::vector<std::uint8_t> unsent_, received_;
  std::size_t sent_ = 0, taken_ = 0;  ///< of these, what is done with
};

}  // namespace pliant::net
