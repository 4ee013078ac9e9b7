#include "collective/link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "net/socket.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<const Parcel> goodbye(std::uint64_t view) {
  auto parcel = std::make_shared<Parcel>();
  wire::Bye bye;
  bye.view = view;
  parcel->message = bye;
  return parcel;
}

TEST(Link, OnlyALaterViewIsNews) {
  Link link;
  EXPECT_TRUE(link.note_view(3));
  EXPECT_FALSE(link.note_view(3));
  EXPECT_FALSE(link.note_view(2));
  EXPECT_EQ(link.loss().view, 3U);
}

TEST(Link, IsTriedAtOnceUntilItWasLost) {
  Link link;
  link.connect_later(1s);
  EXPECT_FALSE(link.due(1h)) << "the other side connects";
  link.connects = true;
  link.connect_later(1s);
  EXPECT_TRUE(link.due(0s));
  link.lost = true;
  link.connect_later(1s);
  EXPECT_FALSE(link.due(1s + Link::kReconnect - 1ns));
  EXPECT_TRUE(link.due(1s + Link::kReconnect));
  link.retry = false;
  link.proven = true;
  link.connect_later(1s);
  EXPECT_FALSE(link.due(1h)) << "its process has ended";
}

TEST(Link, NothingIsKnownOfTheProcessThatComesBack) {
  Link link;
  link.member.id = 7;
  link.pid = 12;
  link.lost = link.proven = true;
  link.note_view(4);
  EXPECT_FALSE(link.may_be(13));
  link.renew();
  EXPECT_EQ(link.member.id, 7U);
  EXPECT_TRUE(link.may_be(13));
  EXPECT_FALSE(link.lost || link.proven);
  EXPECT_EQ(link.loss().view, 0U);
}

TEST(Link, SendsInOrderOnceItHasGreeted) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  Link link;
  link.socket = Fd(ends[0]);
  Fd other(ends[1]);
  link.outbox.push_back(goodbye(1));
  link.outbox.push_back(goodbye(2));
  EXPECT_TRUE(link.flush().ok());
  EXPECT_EQ(link.outbox.size(), 2U);
  link.greeted = true;
  EXPECT_TRUE(link.flush().ok());
  EXPECT_TRUE(link.outbox.empty());
  for (std::uint64_t view : {1, 2}) {
    auto received = net::receive(other).or_throw();
    ASSERT_TRUE(received);
    EXPECT_EQ(std::get<wire::Bye>(received->message).view, view);
  }
  other.reset();
  link.outbox.push_back(goodbye(3));
  EXPECT_FALSE(link.flush().ok());
}

}  // namespace
}  // namespace pliant::collective
