#include "collective/strangers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

/// Strangers at a socket of this test, served by a thread.
struct Door {
  const std::string address = fmt::format("@pliant-strangers-{}", getpid());
  net::Loop loop;
  std::atomic<int> greetings{0};
  Strangers strangers{loop, net::listen_at(address).or_throw(),
                      [this](net::Peer& peer, const wire::PeerHello& hello, const std::vector<Fd>&) -> Status {
                        ++greetings;
                        if (hello.job != "mine") return Error{Code::refused, "another job"};
                        taken = std::move(peer.socket);
                        return {};
                      }};
  Fd taken;
  std::thread thread{[this] {
    strangers.serve();
    loop.every(5ms, [this] { strangers.serve(); });
    loop.run();
  }};
  ~Door() {
    loop.stop();
    thread.join();
  }
  /// A connection; the listener's queue may be full for a moment.
  Fd knock() {
    for (;;) {
      auto made = net::connect_to(address);
      if (made.ok() || made.error().code != Code::io) return std::move(made).or_throw();
      std::this_thread::sleep_for(1ms);
    }
  }
};

template <class Condition>
void until(const Condition& condition) {
  auto end = std::chrono::steady_clock::now() + 60s;
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(condition());
}

TEST(Strangers, WhoGreetsIsHandedOnOrTurnedAway) {
  Door door;
  auto wrong = door.knock(), right = door.knock(), other = door.knock();
  ASSERT_TRUE(net::send(wrong, wire::PeerHello{"theirs", 1}).ok());
  until([&] { return door.strangers.refused() == 1; });
  EXPECT_FALSE(net::receive_within(wrong, 10s).ok()) << "it is closed";
  ASSERT_TRUE(net::send(other, wire::Bye{}).ok());
  until([&] { return door.strangers.refused() == 2; });
  EXPECT_EQ(door.greetings, 1) << "that was no greeting";
  ASSERT_TRUE(net::send(right, wire::PeerHello{"mine", 1}).ok());
  until([&] { return door.greetings == 2; });
  EXPECT_EQ(door.strangers.refused(), 2U);
}

TEST(Strangers, TheOldestOfTooManyThatSayNothingGoes) {
  Door door;
  std::vector<Fd> silent;
  for (std::size_t i = 0; i < Strangers::kMost + 1; ++i) silent.push_back(door.knock());
  until([&] { return door.strangers.refused() == 1; });
  EXPECT_FALSE(net::receive_within(silent.front(), 10s).ok());
  ASSERT_TRUE(net::send(silent.back(), wire::PeerHello{"mine", 1}).ok());
  until([&] { return door.greetings == 1; });
  EXPECT_EQ(door.strangers.refused(), 1U);
}

}  // namespace
}  // namespace pliant::collective
