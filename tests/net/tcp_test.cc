#include "net/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <vector>

#include "net/parts.h"
#include "net/tcp_pair.h"

namespace pliant::net {
namespace {

constexpr auto kHere = "127.0.0.1";

int option_of(const Fd& socket, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  EXPECT_EQ(getsockopt(socket.get(), level, option, &value, &length), 0);
  return value;
}

bool mentions(const Error& error, const std::string& words) { return error.message.find(words) != std::string::npos; }

TEST(Tcp, PortsAreANumberOrARange) {
  auto range = parse_ports("4000-4100").or_throw();
  EXPECT_EQ(range.first, 4000);
  EXPECT_EQ(range.last, 4100);
  auto one = parse_ports("65535").or_throw();
  EXPECT_EQ(one.first, 65535);
  EXPECT_EQ(one.last, 65535);
  EXPECT_EQ(parse_ports("0").or_throw().last, 0);
  for (auto text : {"", "-", "4000-", "-4000", "4100-4000", "0-10", "65536", "4000-65536", "4000-4100-4200", " 4000",
                    "+1", "4000x", "http"}) {
    auto ports = parse_ports(text);
    ASSERT_FALSE(ports.ok()) << text;
    EXPECT_EQ(ports.error().code, Code::invalid);
    EXPECT_TRUE(mentions(ports.error(), text));
  }
}

TEST(Tcp, EndpointsAreAnAddressAndAPort) {
  EXPECT_EQ(parse_endpoint("10.0.0.1:4711").or_throw(), (Endpoint{"10.0.0.1", 4711}));
  EXPECT_EQ(parse_endpoint("[fd00::1]:4711").or_throw(), (Endpoint{"fd00::1", 4711}));
  EXPECT_EQ(parse_endpoint("[FD00:0:0::1]:1").or_throw(), (Endpoint{"fd00::1", 1}));  // one address, one text
  for (auto text : {"10.0.0.1:4711", "[::1]:65535"}) EXPECT_EQ(parse_endpoint(text).or_throw().text(), text);
  for (auto text : {"", ":", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:70000", "10.0.0:1", "010.0.0.1:5",
                    "[10.0.0.1]:5", "fd00::1:4711", "[fd00::1]", "[fd00::1:4711", "[]:5", "host:5", "10.0.0.1:5 "}) {
    auto endpoint = parse_endpoint(text);
    ASSERT_FALSE(endpoint.ok()) << text;
    EXPECT_EQ(endpoint.error().code, Code::invalid);
  }
}

TEST(Tcp, ConnectionsNeverBlockAndNoticeVanishedHosts) {
  TcpPair pair;
  for (const auto* socket : {&pair.left, &pair.right}) {
    EXPECT_TRUE(fcntl(socket->get(), F_GETFL) & O_NONBLOCK);
    EXPECT_TRUE(fcntl(socket->get(), F_GETFD) & FD_CLOEXEC);
    EXPECT_NE(option_of(*socket, IPPROTO_TCP, TCP_NODELAY), 0);
    EXPECT_NE(option_of(*socket, SOL_SOCKET, SO_KEEPALIVE), 0);
    EXPECT_LE(option_of(*socket, IPPROTO_TCP, TCP_KEEPIDLE), 10);
    EXPECT_LE(option_of(*socket, IPPROTO_TCP, TCP_KEEPINTVL), 5);
    EXPECT_GT(option_of(*socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    EXPECT_LE(option_of(*socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 30'000);
  }
  ASSERT_EQ(send(pair.left.get(), "hello", 5, 0), 5);
  wait_for(pair.right.get(), POLLIN);
  std::array<char, 8> text{};
  EXPECT_EQ(recv(pair.right.get(), text.data(), text.size(), 0), 5);
}

TEST(Tcp, AListenerHasThePortItGotAndNobodyWaitsAtIt) {
  auto listener = tcp_listen(kHere, {}).or_throw();
  EXPECT_EQ(listener.endpoint.address, kHere);
  EXPECT_GT(listener.endpoint.port, 0);
  EXPECT_NE(option_of(listener.socket, SOL_SOCKET, SO_REUSEADDR), 0);
  EXPECT_TRUE(fcntl(listener.socket.get(), F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(fcntl(listener.socket.get(), F_GETFD) & FD_CLOEXEC);
  EXPECT_FALSE(tcp_accept(listener.socket).or_throw().has_value());
}

TEST(Tcp, TheFirstFreePortOfARangeIsTaken) {
  auto first = tcp_listen(kHere, {}).or_throw();
  while (first.endpoint.port > 65'000) first = tcp_listen(kHere, {}).or_throw();
  auto port = first.endpoint.port;
  auto taken = tcp_listen(kHere, {port, port});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, Code::io);
  EXPECT_TRUE(mentions(taken.error(), "port " + std::to_string(port) + " at 127.0.0.1 is taken"));

  Ports range{port, static_cast<std::uint16_t>(port + 4)};
  std::vector<Listener> listeners;
  for (int last = port;;) {
    auto next = tcp_listen(kHere, range);
    if (!next.ok()) {
      EXPECT_EQ(next.error().code, Code::io);
      EXPECT_TRUE(mentions(next.error(), "all ports from " + std::to_string(range.first) + " to " +
                                             std::to_string(range.last) + " at 127.0.0.1 are taken"))
          << next.error().message;
      break;
    }
    EXPECT_GT(next.value().endpoint.port, last);
    EXPECT_LE(next.value().endpoint.port, range.last);
    last = next.value().endpoint.port;
    listeners.push_back(std::move(next).value());
    ASSERT_LE(listeners.size(), 4U);
  }
}

TEST(Tcp, APortCanBeUsedAgainAtOnce) {
  for (int attempt = 0;; ++attempt) {
    auto listener = tcp_listen(kHere, {}).or_throw();
    auto port = listener.endpoint.port;
    auto caller = tcp_connect(listener.endpoint).or_throw();
    wait_for(listener.socket.get(), POLLIN);
    auto answerer = std::move(tcp_accept(listener.socket).or_throw().value());
    answerer.reset();  // whoever closes first leaves the connection's ghost behind
    wait_for(caller.get(), POLLIN);
    caller.reset();
    listener.socket.reset();
    if (tcp_listen(kHere, {port, port}).ok()) break;
    ASSERT_LT(attempt, 5);  // another process may have taken it just now, but not always
  }
}

TEST(Tcp, WhatCannotBeListenedAt) {
  EXPECT_EQ(tcp_listen("localhost", {}).error().code, Code::invalid);
  EXPECT_EQ(tcp_listen("", {}).error().code, Code::invalid);
  auto elsewhere = tcp_listen("192.0.2.1", {});  // set aside for documentation: nobody has it
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_TRUE(mentions(elsewhere.error(), "cannot listen at 192.0.2.1:0"));
}

TEST(Tcp, NobodyThereIsAValue) {
  auto listener = tcp_listen(kHere, {}).or_throw();
  listener.socket.reset();
  auto socket = tcp_connect(listener.endpoint);
  if (socket.ok()) {
    wait_for(socket.value().get(), POLLOUT);
    auto status = tcp_connected(socket.value());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::peer_lost);
    EXPECT_TRUE(mentions(status.error(), "refused")) << status.error().message;
    EXPECT_FALSE(tcp_connected(socket.value()).ok()) << "the kernel tells only once";
  } else {
    EXPECT_EQ(socket.error().code, Code::peer_lost);
  }
}

TEST(Tcp, AskedTooEarlyItIsNotConnected) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(tcp_connected(socket).error().code, Code::peer_lost);
}

TEST(Tcp, CallersMayChooseWhereTheyCallFrom) {
  auto listener = tcp_listen(kHere, {}).or_throw();
  auto caller = tcp_connect(listener.endpoint, "127.0.0.2").or_throw();
  wait_for(listener.socket.get(), POLLIN);
  auto answerer = std::move(tcp_accept(listener.socket).or_throw().value());
  sockaddr_in from{};
  socklen_t length = sizeof(from);
  ASSERT_EQ(getpeername(answerer.get(), reinterpret_cast<sockaddr*>(&from), &length), 0);
  EXPECT_EQ(ntohl(from.sin_addr.s_addr), 0x7f000002U);

  EXPECT_EQ(tcp_connect(listener.endpoint, "::1").error().code, Code::invalid);
  EXPECT_EQ(tcp_connect(listener.endpoint, "eth0").error().code, Code::invalid);
  EXPECT_EQ(tcp_connect({"somewhere", 1}).error().code, Code::invalid);
  EXPECT_TRUE(mentions(tcp_connect(listener.endpoint, "192.0.2.1").error(), "cannot call from 192.0.2.1"));
}

TEST(Tcp, Ipv6) {
  auto probe = tcp_listen("::1", {});
  if (!probe.ok()) GTEST_SKIP() << "no IPv6 here: " << probe.error().message;
  EXPECT_EQ(option_of(probe.value().socket, IPPROTO_IPV6, IPV6_V6ONLY), 1);
  TcpPair pair("::1");
  EXPECT_EQ(pair.endpoint.text(), "[::1]:" + std::to_string(pair.endpoint.port));
  ASSERT_EQ(send(pair.right.get(), "x", 1, 0), 1);
  wait_for(pair.left.get(), POLLIN);
  EXPECT_TRUE(tcp_connect(probe.value().endpoint, "::1").ok());
  EXPECT_EQ(tcp_connect(pair.endpoint, kHere).error().code, Code::invalid);
}

TEST(Tcp, InterfacesHaveAddresses) {
  EXPECT_EQ(address_of_interface("lo").or_throw(), kHere);
  auto missing = address_of_interface("nonesuch");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::not_found);
  EXPECT_TRUE(mentions(missing.error(), "'nonesuch'"));
  EXPECT_TRUE(mentions(missing.error(), "there are: ") && mentions(missing.error(), "lo")) << missing.error().message;
}

TEST(Tcp, LoopbackIsKnown) {
  for (const char* address : {"127.0.0.1", "127.0.1.1", "127.255.255.254", "::1"}) EXPECT_TRUE(is_loopback(address));
  for (const char* address : {"126.0.0.1", "128.0.0.1", "10.0.0.127", "::2", "fe80::1", "localhost", ""})
    EXPECT_FALSE(is_loopback(address)) << address;
}

TEST(Tcp, AddressesResolveToThemselves) {
  EXPECT_EQ(resolve(kHere).or_throw(), kHere);
  EXPECT_EQ(resolve("::1").or_throw(), "::1");
  auto nobody = resolve(std::string(300, 'x'));  // too long to ask anybody
  ASSERT_FALSE(nobody.ok());
  EXPECT_EQ(nobody.error().code, Code::not_found);
}

TEST(Parts, AFlowIsOfOneConnectionAndOneDirection) {
  TcpPair one, other;
  auto there = flow_of(one.left.get(), Flow::out), back = flow_of(one.right.get(), Flow::out);
  EXPECT_EQ(there, flow_of(one.right.get(), Flow::in));
  EXPECT_EQ(back, flow_of(one.left.get(), Flow::in));
  EXPECT_NE(there, back);
  EXPECT_NE(there, flow_of(other.left.get(), Flow::out));
  EXPECT_NE(there, flow_of(other.right.get(), Flow::in));
  EXPECT_EQ(flow_of(-1, Flow::out), 0U);
}

}  // namespace
}  // namespace pliant::net
