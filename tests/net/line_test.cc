#include "net/line.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <random>

#include "net/loop.h"
#include "net/paired_keys.h"
#include "net/tcp_pair.h"

namespace pliant::net {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kAround = RecordKey::kHead + RecordKey::kTag;  // what a record has beside its packet

struct Streams {
  Fd left, right;
  Streams() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    left = Fd(ends[0]);
    right = Fd(ends[1]);
  }
};

wire::Message random_message(std::mt19937& random) {
  auto upto = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random); };
  switch (upto(4)) {
    case 0:
      return wire::Bye{};
    case 1:
      return wire::Stored{upto(100), upto(100)};
    case 2:
      return wire::Refusal{std::string(upto(wire::kMaxText), 'r')};
    case 3: {
      wire::ViewNotice view;  // up to most of a packet
      view.members.resize(upto(300));
      for (auto& member : view.members) member.address = std::string(upto(wire::kMaxName), 'a');
      return view;
    }
    default:
      return wire::Start{upto(1'000'000)};
  }
}

void put(const Fd& socket, const Bytes& bytes) {
  ASSERT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

Error error_of(Line& line) {
  auto received = line.receive();
  EXPECT_FALSE(received.ok());
  return received.error();
}

/// Messages, and the bytes that they are on a line.
struct Speech {
  std::vector<Bytes> packets;
  Bytes bytes;
  Speech(int messages, std::mt19937& random) {
    LeftSealer left;
    for (int i = 0; i < messages; ++i) {
      packets.push_back(wire::encode(random_message(random)));
      auto record = left.record_of(packets.back());
      bytes.insert(bytes.end(), record.begin(), record.end());
    }
  }
  Bytes piece(std::size_t at, std::size_t size) const {
    auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    return {begin, begin + static_cast<std::ptrdiff_t>(size)};
  }
};

/// Holds a line against what should come out of it.
struct Hearer {
  Line line;
  const Speech& speech;
  std::size_t heard = 0;
  std::size_t used = 0;

  /// REQUIRES: so many bytes were sent so far.
  void take_all(std::size_t sent) {
    while (auto received = line.receive().or_throw()) {
      EXPECT_TRUE(received->fds.empty());
      ASSERT_LT(heard, speech.packets.size());
      EXPECT_EQ(wire::encode(received->message), speech.packets[heard]);
      used += kAround + speech.packets[heard++].size();
    }
    if (heard == speech.packets.size()) return;
    EXPECT_LT(sent - used, kAround + speech.packets[heard].size()) << "a whole message is kept back";
  }
};

void send_in_pieces(unsigned seed, std::size_t most) {
  std::mt19937 random(seed);
  Speech speech(20, random);
  auto size_upto = [&](std::size_t left) {
    return std::min(left, std::uniform_int_distribution<std::size_t>(0, most)(random));
  };
  Streams streams;
  auto at = size_upto(speech.bytes.size());  // this much came with the handshake
  Hearer hearer{Line::remote(std::move(streams.right), speech.piece(0, at), right_keys()), speech};
  hearer.take_all(at);
  while (at < speech.bytes.size()) {
    auto size = size_upto(speech.bytes.size() - at);
    put(streams.left, speech.piece(at, size));
    at += size;
    hearer.take_all(at);
  }
  EXPECT_EQ(hearer.heard, speech.packets.size()) << "seed " << seed;
}

TEST(Line, AnyPiecesGiveTheSameMessages) {
  for (unsigned seed = 0; seed < 10; ++seed)
    for (std::size_t most : {7, 3'000, 100'000}) send_in_pieces(seed, most);
}

TEST(Line, AFullLineLosesAndSplitsNothing) {
  Streams streams;
  auto from = Line::remote(std::move(streams.left), {}, left_keys());
  auto to = Line::remote(std::move(streams.right), {}, right_keys());
  std::mt19937 random(1);
  std::deque<Bytes> under_way;
  std::size_t refused = 0;
  std::size_t arrived = 0;
  while (arrived < 2'000) {
    for (int i = 0; i < 50; ++i) {
      auto message = random_message(random);
      if (from.try_send(message).or_throw())
        under_way.push_back(wire::encode(message));
      else
        ++refused;
    }
    auto most = random() % 70;  // slower than they come, on average
    for (std::size_t i = 0; i < most; ++i) {
      auto received = to.receive().or_throw();
      if (!received) break;
      ASSERT_FALSE(under_way.empty());
      EXPECT_EQ(wire::encode(received->message), under_way.front());
      under_way.pop_front();
      ++arrived;
    }
  }
  EXPECT_GT(refused, 0U) << "the line was never full";
  while (!under_way.empty()) {
    auto flushed = from.flush().or_throw();
    EXPECT_EQ(flushed, !from.wants_to_write());
    auto received = to.receive().or_throw();
    if (!received) {
      wait_for(to.fd(), POLLIN);
      continue;
    }
    EXPECT_EQ(wire::encode(received->message), under_way.front());
    under_way.pop_front();
  }
  EXPECT_FALSE(from.wants_to_write());
  EXPECT_FALSE(to.receive().or_throw().has_value());
}

TEST(Line, ALoopDrainsAFullLine) {
  Loop loop;
  TcpPair pair;
  auto from = Line::remote(std::move(pair.left), {}, left_keys());
  auto to = Line::remote(std::move(pair.right), {}, right_keys());
  wire::Refusal message{std::string(wire::kMaxText, 'x')};
  std::size_t sent = 0;
  std::size_t arrived = 0;
  while (from.try_send(message).or_throw()) ++sent;
  ASSERT_TRUE(from.wants_to_write());
  auto nothing = [] { ADD_FAILURE() << "nobody sends that way"; };
  loop.watch(from.fd(), nothing, [&] { loop.want_writable(from.fd(), !from.flush().or_throw()); });
  loop.want_writable(from.fd(), true);
  loop.watch(to.fd(), [&] {
    while (to.receive().or_throw()) ++arrived;
    if (arrived == sent) loop.stop();
  });
  loop.run();
  EXPECT_FALSE(from.wants_to_write());
}

TEST(Line, AFullLineFillsUpToItsLimitOnly) {
  Streams streams;
  auto line = Line::remote(std::move(streams.left), {}, left_keys());
  wire::Refusal message{std::string(wire::kMaxText, 'x')};
  std::size_t count = 0;
  while (line.try_send(message).or_throw()) ASSERT_LT(++count, 100'000U);
  EXPECT_TRUE(line.wants_to_write());
  EXPECT_FALSE(line.try_send(message).or_throw());
  EXPECT_FALSE(line.flush().or_throw());
}

TEST(Line, TheEndComesAfterWhatWasSent) {
  TcpPair pair;
  auto line = Line::remote(std::move(pair.right), {}, right_keys());
  LeftSealer left;
  put(pair.left, left.record_of(wire::encode(wire::Start{7})));
  put(pair.left, left.record_of(wire::encode(wire::Bye{})));
  pair.left.reset();
  wait_for(line.fd(), POLLRDHUP);
  EXPECT_EQ(std::get<wire::Start>(line.receive().or_throw()->message).id, 7U);
  EXPECT_TRUE(std::holds_alternative<wire::Bye>(line.receive().or_throw()->message));
  EXPECT_EQ(error_of(line).code, Code::peer_lost);
  EXPECT_EQ(error_of(line).code, Code::peer_lost);
}

TEST(Line, AnEndInTheMiddleIsALossWhereverItComes) {
  auto record = LeftSealer().record_of(wire::encode(wire::Refusal{"a reason"}));
  for (std::size_t size = 1; size < record.size(); ++size) {
    Streams streams;
    auto line = Line::remote(std::move(streams.right), {}, right_keys());
    put(streams.left, Bytes(record.begin(), record.begin() + static_cast<long>(size)));
    EXPECT_FALSE(line.receive().or_throw().has_value());
    streams.left.reset();
    auto error = error_of(line);
    EXPECT_EQ(error.code, Code::peer_lost);
    EXPECT_NE(error.message.find("in the middle"), std::string::npos);
  }
}

TEST(Line, SendingToAClosedPeerIsALoss) {
  TcpPair pair;
  auto line = Line::remote(std::move(pair.left), {}, left_keys());
  pair.right.reset();
  Result<bool> sent = true;
  for (int i = 0; i < 100'000 && sent.ok(); ++i) sent = line.try_send(wire::Bye{});  // the first may not know yet
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, Code::peer_lost);
}

TEST(Line, WhatIsNoMessageOfTheOtherEndIsAProtocolError) {
  auto packet = wire::encode(wire::Refusal{"a reason"});
  auto broken = packet;
  broken[0] ^= 1;
  auto longer = packet;
  longer.push_back(0);
  using Make = std::function<Bytes(LeftSealer&)>;
  std::string request = "GET / HTTP/1.1\r\n\r\n";
  const std::vector<Make> kinds = {
      [&](LeftSealer&) { return Bytes(request.begin(), request.end()); },
      [](LeftSealer& left) { return left.record_of(Bytes(wire::kMaxPacket + 1)); },
      [](LeftSealer&) { return Bytes(4, 0xff); },
      [](LeftSealer&) { return Bytes(4, 0); },
      [&](LeftSealer& left) { return left.record_of(broken); },
      [&](LeftSealer& left) { return left.record_of(longer); },
      [](LeftSealer& left) { return left.record_of(Bytes(wire::kMaxPacket, 7)); },
      [&](LeftSealer& left) {  // altered on its way
        auto record = left.record_of(packet);
        record.back() ^= 1;
        return record;
      },
      [&](LeftSealer&) { return LeftSealer().record_of(packet); },  // the first one a second time
  };
  for (const auto& make : kinds) {
    Streams streams;
    const int room = 2 * wire::kMaxPacket;  // what the kernel gives by itself is less than the largest message
    ASSERT_EQ(setsockopt(streams.left.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
    auto line = Line::remote(std::move(streams.right), {}, right_keys());
    LeftSealer left;
    put(streams.left, left.record_of(packet));
    put(streams.left, make(left));
    EXPECT_TRUE(line.receive().or_throw().has_value());  // what came before is good
    EXPECT_EQ(error_of(line).code, Code::protocol);
    put(streams.left, left.record_of(packet));
    EXPECT_EQ(error_of(line).code, Code::protocol) << "there is no way back";
  }
}

TEST(Line, LocalLinesCarryDescriptors) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  auto left = Line::local(Fd(ends[0]));
  auto right = Line::local(Fd(ends[1]));
  EXPECT_TRUE(left.is_local());
  Fd event(eventfd(3, EFD_CLOEXEC | EFD_NONBLOCK));
  int fd = event.get();
  ASSERT_TRUE(left.try_send(wire::Start{5}, {&fd, 1}).or_throw());
  auto received = right.receive().or_throw();
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(std::get<wire::Start>(received->message).id, 5U);
  ASSERT_EQ(received->fds.size(), 1U);
  std::uint64_t value = 0;
  ASSERT_EQ(read(received->fds[0].get(), &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
  EXPECT_EQ(value, 3U);
  EXPECT_FALSE(right.receive().or_throw().has_value());

  wire::Refusal message{std::string(wire::kMaxText, 'x')};
  for (int i = 0; left.try_send(message).or_throw(); ++i) ASSERT_LT(i, 100'000);
  EXPECT_FALSE(left.wants_to_write());
  EXPECT_TRUE(left.flush().or_throw());
  left.close();
  while (right.receive().ok()) continue;
  EXPECT_EQ(error_of(right).code, Code::peer_lost);
}

TEST(Line, AClosedLineSaysSo) {
  Streams streams;
  auto line = Line::remote(std::move(streams.left), {}, left_keys());
  EXPECT_TRUE(static_cast<bool>(line));
  EXPECT_FALSE(line.is_local());
  line.close();
  EXPECT_FALSE(static_cast<bool>(line));
  EXPECT_FALSE(line.is_local());
  EXPECT_FALSE(line.wants_to_write());
  EXPECT_EQ(line.try_send(wire::Bye{}).error().code, Code::peer_lost);
  EXPECT_EQ(line.flush().error().code, Code::peer_lost);
  EXPECT_EQ(error_of(line).code, Code::peer_lost);
  EXPECT_EQ(Line().fd(), -1);
}

}  // namespace
}  // namespace pliant::net
