// A line against a stream of bytes in pieces. From a peer that seals whatever it likes it gives the messages that are
// there, then waits or refuses; from anybody else, or if a byte is changed on its way, nothing.
//   byte 0: how much came with the handshake; byte 1: how long the pieces are, times 16; byte 2: whether the peer
//   sealed it (0), nobody did (1), or which byte of the stream is changed; the rest: the stream, as lengths and packets
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.h"
#include "fuzz/fuzz.h"
#include "net/line.h"
#include "net/paired_keys.h"

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
    if (stream.size() - sizeof(length) < length) break;
    auto packet = stream.subspan(sizeof(length), length);
    expected.refused = length > wire::kMaxPacket || !wire::decode(packet).ok();
    if (expected.refused) break;
    expected.packets.emplace_back(packet.begin(), packet.end());
    stream = stream.subspan(sizeof(length) + length);
  }
  return expected;
}

/// Every whole packet of a stream, sealed. Ends with the first that a line must refuse.
Bytes sealed(Input stream) {
  net::LeftSealer sealer;
  Bytes out;
  std::uint32_t length = 0;
  while (stream.size() >= sizeof(length)) {
    std::memcpy(&length, stream.data(), sizeof(length));
    if (stream.size() - sizeof(length) < length) break;
    auto record = sealer.record_of(stream.subspan(sizeof(length), length));
    out.insert(out.end(), record.begin(), record.end());
    stream = stream.subspan(sizeof(length) + length);
  }
  return out;
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
  out.put(first), out.put(pieces), out.put(std::uint8_t{0});
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
  if (input.size() < 3) return;
  auto plain = input.subspan(3);
  auto changed = input[2] > 1;
  auto stream = input[2] == 1 ? Bytes(plain.begin(), plain.end()) : sealed(plain);
  if (changed && stream.empty()) return;
  if (changed) stream[std::size_t{input[2]} * 7 % stream.size()] ^= input[2];
  auto piece = std::size_t{input[1]} * 16 + 1;
  auto first = Input(stream).first(std::min<std::size_t>(input[0], stream.size()));
  std::array<int, 2> ends{};
  PLIANT_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  Fd sender(ends[0]);
  auto line = net::Line::remote(Fd(ends[1]), Bytes(first.begin(), first.end()), net::right_keys());

  std::vector<Bytes> packets;
  bool good = take_all(line, packets);
  for (auto rest = Input(stream).subspan(first.size()); good && !rest.empty();) {
    auto part = rest.first(std::min(piece, rest.size()));
    PLIANT_ASSERT(send(sender.get(), part.data(), part.size(), 0) == static_cast<ssize_t>(part.size()));
    rest = rest.subspan(part.size());
    good = take_all(line, packets);
  }
  auto expected = expected_of(plain);
  if (input[2] == 0) {
    PLIANT_ASSERT(packets == expected.packets);
    PLIANT_ASSERT(good != expected.refused);
  } else {  // of what was changed at most what came before it
    PLIANT_ASSERT(packets.size() < expected.packets.size() + (input[2] == 1 || expected.refused));
    PLIANT_ASSERT(input[2] != 1 || packets.empty());
    PLIANT_ASSERT(std::equal(packets.begin(), packets.end(), expected.packets.begin()));
  }
  if (!good) return;
  sender.reset();
  PLIANT_ASSERT(line.receive().error().code == Code::peer_lost);
}

}  // namespace pliant::fuzz
