// Two ends of a TCP connection on the loopback, in one process.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <string>
#include <utility>

#include "net/tcp.h"

namespace pliant::net {

inline constexpr int kHangGuard = 60'000;  ///< milliseconds; no test takes that long unless it hangs

inline void wait_for(int fd, short events) {
  pollfd waiting{fd, events, 0};
  ASSERT_EQ(poll(&waiting, 1, kHangGuard), 1) << "nothing happens";
}

struct TcpPair {
  explicit TcpPair(const std::string& address = "127.0.0.1") {
    auto listening = tcp_listen(address, {}).or_throw();
    endpoint = listening.endpoint;
    left = tcp_connect(endpoint).or_throw();
    wait_for(left.get(), POLLOUT);
    tcp_connected(left).or_throw();
    wait_for(listening.socket.get(), POLLIN);
    right = std::move(tcp_accept(listening.socket).or_throw().value());
  }
  Endpoint endpoint;
  Fd left, right;
};

}  // namespace pliant::net
