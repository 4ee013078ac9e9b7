#include "net/socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>

#include "base/system.h"
#include "net/shared_memory.h"

namespace pliant::net {
namespace {

using namespace std::chrono_literals;

std::string fresh_address() { return "@pliant-test/" + std::to_string(random_u64()); }

struct Pair {
  Fd listener, left, right;
  Pair() {
    auto address = fresh_address();
    listener = listen_at(address).or_throw();
    left = connect_to(address).or_throw();
    right = std::move(accept_from(listener).or_throw().value().socket);
  }
};

TEST(Socket, MessagesAndDescriptorsArriveTogether) {
  Pair pair;
  auto segment = create_segment("test", kPage, Backing::sparse).or_throw();
  segment.memory.data()[7] = std::byte{42};
  int fd = segment.fd.get();
  ASSERT_TRUE(send(pair.left, wire::PeerHello{"job", 2}, {&fd, 1}).ok());
  ASSERT_TRUE(send(pair.left, wire::Bye{}).ok());
  auto first = receive_within(pair.right, 1000ms).or_throw();
  EXPECT_EQ(std::get<wire::PeerHello>(first.message).id, 2U);
  ASSERT_EQ(first.fds.size(), 1U);
  EXPECT_EQ(map_segment(first.fds[0], kPage).or_throw().data()[7], std::byte{42});
  EXPECT_TRUE(std::holds_alternative<wire::Bye>(receive_within(pair.right, 1000ms).or_throw().message));
  EXPECT_FALSE(receive(pair.right).or_throw().has_value());
  EXPECT_EQ(peer_pid(pair.right).or_throw(), getpid());
}

TEST(Socket, TheOtherEndsEndIsAValue) {
  Pair pair;
  pair.left.reset();
  auto received = receive(pair.right);
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, Code::peer_lost);
  auto sent = send(pair.right, wire::Bye{});
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, Code::peer_lost);
}

TEST(Socket, StrangersBytesAreAProtocolError) {
  Pair pair;
  ASSERT_GT(::send(pair.left.get(), "GET / HTTP/1.1\r\n\r\n", 18, 0), 0);
  auto received = receive(pair.right);
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, Code::protocol);
}

TEST(Socket, AFullBufferIsNotAnError) {
  Pair pair;
  wire::Refusal long_one{std::string(wire::kMaxText, 'x')};
  bool full = false;
  for (int i = 0; i < 100'000 && !full; ++i) full = !try_send(pair.left, long_one).or_throw();
  EXPECT_TRUE(full);
  EXPECT_EQ(send(pair.left, long_one).error().code, Code::io);
  EXPECT_TRUE(receive(pair.right).or_throw().has_value());  // and nothing of it is lost
}

TEST(Socket, AddressesThatCannotBe) {
  EXPECT_EQ(listen_at("").error().code, Code::invalid);
  EXPECT_EQ(listen_at(std::string(200, 'a')).error().code, Code::invalid);
  EXPECT_EQ(connect_to(fresh_address()).error().code, Code::peer_lost);
  EXPECT_EQ(connect_to("/nonexistent/socket").error().code, Code::not_found);
}

TEST(Socket, WaitingEndsWithItsLimit) {
  Pair pair;
  auto received = receive_within(pair.right, 1ms);
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, Code::io);
}

TEST(Socket, TheLargestMessageIsOnePacket) {
  Pair pair;
  wire::ViewNotice view{1, 1, 1, 1, {}};
  for (std::uint64_t id = 0; id < wire::kMaxMembers; ++id)
    view.members.push_back({id, 1, std::string(wire::kMaxAddress, 'a'), std::string(wire::kMaxHost, 'h'),
                            std::string(wire::kMaxEndpoint, 'e')});
  ASSERT_TRUE(send(pair.left, wire::Promise{1, view, 1, view}).ok());
  auto there = receive_within(pair.right, 10'000ms).or_throw();
  EXPECT_EQ(std::get<wire::Promise>(there.message).stored.members, view.members);
  ASSERT_TRUE(send(pair.right, wire::Promise{1, view, 1, view}).ok());
  auto back = receive_within(pair.left, 10'000ms).or_throw();
  EXPECT_EQ(std::get<wire::Promise>(back.message).view.members, view.members);
}

TEST(Socket, AMemberOfAHostWithTheLongestNameIsNotCut) {
  EXPECT_LE(64 + 1 + 12, static_cast<int>(wire::kMaxHost));
  EXPECT_LE(host_identity().size(), wire::kMaxHost);
}

}  // namespace
}  // namespace pliant::net
