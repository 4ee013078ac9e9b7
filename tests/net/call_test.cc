// The calling side of a handshake; the answering one is in gate_test.cc.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <vector>

#include "base/clock.h"
#include "net/gate_place.h"

namespace pliant::net {
namespace {

TEST(Call, NobodyThereIsAnError) {
  Place place;
  place.open_gate();
  place.on_loop([&] { place.gate_.reset(); });
  auto result = place.call(someone());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::peer_lost);
  EXPECT_NE(result.error().message.find(place.at_.text()), std::string::npos);
}

TEST(Call, WhatCannotBeginEndsToo) {
  Place place;
  EXPECT_EQ(place.call({"nowhere", 1}, place.secret_, someone()).error().code, Code::invalid);
  EXPECT_FALSE(place.call({"127.0.0.1", 1}, place.secret_, someone(), kLong, "192.0.2.1").ok());
}

TEST(Call, SilenceEndsWithPatience) {
  Place place;
  auto silent = tcp_listen("127.0.0.1", {}).or_throw();  // the kernel connects, and nobody answers
  auto result = place.call(silent.endpoint, place.secret_, someone(), 30ms);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::io);
  EXPECT_NE(result.error().message.find("no answer within 30 ms"), std::string::npos);
}

/// As on a link that loses everything: first packets are dropped while the queue of connections is full.
TEST(Call, APortThatDoesNotConnectIsLeftSoon) {
  Place place;
  auto full = tcp_listen("127.0.0.1", {}).or_throw();
  ASSERT_EQ(listen(full.socket.get(), 0), 0);
  std::vector<Fd> crowd;
  for (int i = 0; i < 4; ++i) crowd.push_back(tcp_connect(full.endpoint).or_throw());
  SteadyClock clock;
  auto begun = clock.now();
  auto result = place.call(full.endpoint, place.secret_, someone(), kLong);
  ASSERT_FALSE(result.ok());
  EXPECT_GE(clock.now() - begun, Call::kTimeToConnect);
  EXPECT_NE(result.error().message.find("no answer within 500 ms"), std::string::npos) << result.error().message;
}

TEST(Call, AStrangerThatAnswersIsRefused) {
  Place place;
  auto listener = tcp_listen("127.0.0.1", {}).or_throw();
  auto talkative = std::async(std::launch::async, [&] {
    wait_for(listener.socket.get(), POLLIN);
    auto socket = std::move(tcp_accept(listener.socket).or_throw().value());
    std::string banner = "220 mail.example.org ESMTP\r\n";
    put(socket, Bytes(banner.begin(), banner.end()));
    get(socket);
    return socket;
  });
  EXPECT_EQ(place.call(listener.endpoint, place.secret_, someone()).error().code, Code::protocol);
  auto echo = std::async(std::launch::async, [&] {
    wait_for(listener.socket.get(), POLLIN);
    auto socket = std::move(tcp_accept(listener.socket).or_throw().value());
    put(socket, get(socket));
    return socket;
  });
  EXPECT_EQ(place.call(listener.endpoint, place.secret_, someone()).error().code, Code::protocol);
}

TEST(Call, ItMayBeDestroyedWhileItCallsBack) {
  Place place;
  place.open_gate();
  for (int port : {int{place.at_.port}, 0}) {  // a good end, and a bad one
    Endpoint to = place.at_;
    if (port == 0) to.address = "nowhere";
    std::unique_ptr<Call> call;
    std::promise<bool> end;
    place.on_loop([&] {
      call = std::make_unique<Call>(
          place.loop_, to, "", place.secret_, someone(),
          [&call, &end, text = std::string("what is captured outlives the call until it returns")](const auto& result) {
            call.reset();
            end.set_value(result.ok() && !text.empty());
          },
          kLong);
    });
    EXPECT_EQ(end.get_future().get(), port != 0);
    place.on_loop([] {});  // the callback has returned
  }
}

TEST(Call, NobodyIsCalledBackAfterItsEnd) {
  Place place;
  place.open_gate();
  auto never = [](const Result<Guest>&) { ADD_FAILURE() << "it is gone"; };
  place.on_loop([&] {
    Call good(place.loop_, place.at_, "", place.secret_, someone(), never);
    Call bad(place.loop_, {"nowhere", 1}, "", place.secret_, someone(), never);
  });
  for (int i = 0; i < 10; ++i) place.on_loop([] {});
  place.wait_until([&] { return place.gate_->refused() == 1; });  // the good one's connection was there for a moment
}

// ---- a crowd that means no good ----

}  // namespace
}  // namespace pliant::net
