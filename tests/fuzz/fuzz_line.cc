// A stream of bytes by anybody, in pieces: it gives the messages that it holds, then waits or is refused.
//   byte 0: how much came with the handshake; byte 1: how long the pieces are, times 16; the rest: the stream
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.h"
#include "fuzz/fuzz.h"
#include "net/line.h"

namespace pliant::fuzz {
namespace {

using Input = std::span<const std::uint8_t>;

/// What a line must make of a stream, worked out from the whole of it.
struct Expected {
  std::vector<Bytes> packets;
  bool refused = false;
};

Expected expected_of(Input stream) {
  Expected expected;
  std::uint32_t length = 0;
  while (stream.size() >= sizeof(length)) {
    std::memcpy(&length, stream.data(), sizeof(length));
    expected.refused = length > wire::kMaxPacket;
    if (expected.refused || stream.size() - sizeof(length) < length) break;
    auto packet = stream.subspan(sizeof(length), length);
    expected.refused = !wire::decode(packet).ok();
    if (expected.refused) break;
    expected.packets.emplace_back(packet.begin(), packet.end());
    stream = stream.subspan(sizeof(length) + length);
  }
  return expected;
}

/// False once the line has refused.
bool take_all(net::Line& line, std::vector<Bytes>& packets) {
  for (;;) {
    auto received = line.receive();
    if (!received.ok()) {
      PLIANT_ASSERT(received.error().code == Code::protocol);
      return false;
    }
    if (!received.value()) return true;
    packets.push_back(wire::encode(received.value()->message));
  }
}

Bytes stream_of(const std::vector<wire::Message>& messages, std::uint8_t first, std::uint8_t pieces) {
  ByteWriter out;
  out.put(first), out.put(pieces);
  for (const auto& message : messages) {
    auto packet = wire::encode(message);
    out.put_text({reinterpret_cast<const char*>(packet.data()), packet.size()});
  }
  return std::move(out).take();
}

}  // namespace

std::vector<Bytes> seeds() {
  return {stream_of({}, 0, 0), stream_of({wire::Bye{}}, 3, 0), stream_of({wire::Start{4}, wire::Refusal{"why"}}, 0, 1),
          stream_of({wire::Refusal{std::string(1000, 'x')}, wire::Bye{}, wire::Bye{}}, 255, 9)};
}

void run(std::span<const std::uint8_t> input) {
  if (input.size() < 2) return;
  auto stream = input.subspan(2);
  auto piece = std::size_t{input[1]} * 16 + 1;
  auto first = stream.first(std::min<std::size_t>(input[0], stream.size()));
  std::array<int, 2> ends{};
  PLIANT_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  Fd sender(ends[0]);
  auto line = net::Line::remote(Fd(ends[1]), Bytes(first.begin(), first.end()));

  std::vector<Bytes> packets;
  bool good = take_all(line, packets);
  for (auto rest = stream.subspan(first.size()); good && !rest.empty();) {
    auto part = rest.first(std::min(piece, rest.size()));
    PLIANT_ASSERT(send(sender.get(), part.data(), part.size(), 0) == static_cast<ssize_t>(part.size()));
    rest = rest.subspan(part.size());
    good = take_all(line, packets);
  }
  auto expected = expected_of(stream);
  PLIANT_ASSERT(packets == expected.packets);
  PLIANT_ASSERT(good != expected.refused);
  if (!good) return;
  sender.reset();
  PLIANT_ASSERT(line.receive().error().code == Code::peer_lost);
}

}  // namespace pliant::fuzz
