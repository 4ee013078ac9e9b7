#include "net/gate.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <deque>
#include <future>
#include <random>
#include <thread>

#include "net/gate_place.h"
#include "net/line.h"

namespace pliant::net {
namespace {

TEST(Gate, WhoKnowsTheSecretComesIn) {
  Place place;
  place.open_gate();
  auto guest = place.call(someone()).or_throw();
  EXPECT_EQ(guest.who, someone());
  place.wait_until([&] { return place.guests_.size() == 1; });
  EXPECT_EQ(place.guests_[0].who, someone());
  EXPECT_EQ(place.pending(), 0U);
  EXPECT_EQ(place.refused(), 0U);

  auto near = Line::remote(std::move(guest.socket), std::move(guest.rest), std::move(guest.keys));
  auto& there = place.guests_[0];
  auto far = Line::remote(std::move(there.socket), std::move(there.rest), std::move(there.keys));
  ASSERT_TRUE(near.try_send(wire::Start{4}).or_throw());
  wait_for(far.fd(), POLLIN);
  EXPECT_EQ(std::get<wire::Start>(far.receive().or_throw()->message).id, 4U);
  ASSERT_TRUE(far.try_send(wire::Bye{}).or_throw());
  wait_for(near.fd(), POLLIN);
  EXPECT_TRUE(std::holds_alternative<wire::Bye>(near.receive().or_throw()->message));
}

TEST(Gate, Ipv6) {
  auto probe = tcp_listen("::1", {});
  if (!probe.ok()) GTEST_SKIP() << "no IPv6 here: " << probe.error().message;
  Place place;
  place.open_gate({}, "::1");
  EXPECT_TRUE(place.call(place.at_, place.secret_, someone(), kLong, "::1").ok());
}

TEST(Gate, WhatComesRightBehindTheProofIsKept) {
  Place place;
  place.open_gate();
  auto socket = raw_connection(place.at_);
  auto caller = Handshake::call(place.secret_, someone());
  put(socket, caller.take_output());
  Bytes answer = get(socket);
  ASSERT_EQ(caller.feed(answer).or_throw(), answer.size());
  auto bytes = caller.take_output();
  Bytes behind(500);
  for (std::size_t i = 0; i < behind.size(); ++i) behind[i] = static_cast<std::uint8_t>(i);
  bytes.insert(bytes.end(), behind.begin(), behind.end());
  put(socket, bytes);
  place.wait_until([&] { return place.guests_.size() == 1; });
  auto got = place.guests_[0].rest;
  while (got.size() < behind.size()) {
    auto more = get(place.guests_[0].socket);
    got.insert(got.end(), more.begin(), more.end());
  }
  EXPECT_EQ(got, behind);
}

TEST(Gate, AHandshakeMayComeByteByByte) {
  Place place;
  place.open_gate({.patience = kLong});
  auto socket = raw_connection(place.at_);
  auto caller = Handshake::call(place.secret_, someone());
  for (auto byte : caller.take_output()) put(socket, {byte});
  while (!caller.done()) {
    auto part = get(socket);
    ASSERT_TRUE(caller.feed(part).ok());
  }
  for (auto byte : caller.take_output()) put(socket, {byte});
  place.wait_until([&] { return place.guests_.size() == 1; });
}

TEST(Gate, TheWrongOnesAreTurnedAway) {
  Place place;
  place.open_gate({.objection = [](const Introduction& who) { return who.from == 9 ? "nine may not come in" : ""; }});

  auto wrong_secret = place.call(place.at_, Secret::random(), someone());
  ASSERT_FALSE(wrong_secret.ok());
  EXPECT_EQ(wrong_secret.error().code, Code::peer_lost);  // whoever is refused is told nothing
  EXPECT_NE(wrong_secret.error().message.find("another job, secret or version"), std::string::npos);
  EXPECT_NE(wrong_secret.error().message.find(place.at_.text()), std::string::npos);
  place.wait_until([&] { return place.gate_->refused() == 1; });

  auto wrong_job = place.call({Purpose::letters, "another"});
  ASSERT_FALSE(wrong_job.ok());
  EXPECT_EQ(wrong_job.error().code, Code::peer_lost);
  EXPECT_EQ(place.refused(), 2U);

  auto objected = place.call({Purpose::letters, "job", 9}).or_throw();
  EXPECT_TRUE(get(objected.socket).empty());  // it is let in by its secret, and then shown out
  EXPECT_EQ(place.refused(), 3U);

  for (std::string text : {"GET / HTTP/1.1\r\n\r\n", "................"}) {
    auto stranger = raw_connection(place.at_);
    put(stranger, Bytes(text.begin(), text.end()));
    EXPECT_TRUE(get(stranger).empty());
  }
  place.wait_until([&] { return place.gate_->refused() == 5; });

  raw_connection(place.at_).reset();  // a look at the port
  place.wait_until([&] { return place.gate_->refused() == 6; });
  EXPECT_TRUE(place.guests_.empty());
  EXPECT_EQ(place.pending(), 0U);
  EXPECT_TRUE(place.call({Purpose::letters, "job", 8}).ok());
}

TEST(Gate, TheSilentAndTheHalfFinishedAreNotWaitedForLong) {
  Place place;
  place.open_gate({.patience = 50ms});
  auto silent = raw_connection(place.at_);
  auto half = raw_connection(place.at_);
  auto hello = Handshake::call(place.secret_, someone()).take_output();
  put(half, Bytes(hello.begin(), hello.begin() + 30));
  auto unproven = raw_connection(place.at_);
  put(unproven, hello);
  EXPECT_FALSE(get(unproven).empty());  // the answer
  for (const auto* socket : {&silent, &half, &unproven}) EXPECT_TRUE(get(*socket).empty());
  place.wait_until([&] { return place.gate_->refused() == 3 && place.gate_->pending() == 0; });
}

TEST(Gate, TheOldestMakesRoom) {
  Place place;
  place.open_gate({.most_pending = 2, .patience = kLong});
  std::vector<Fd> sockets;
  for (int i = 0; i < 3; ++i) {
    sockets.push_back(raw_connection(place.at_));
    place.wait_until([&] { return place.gate_->pending() + place.gate_->refused() == sockets.size(); });
  }
  EXPECT_TRUE(get(sockets[0]).empty());
  EXPECT_EQ(place.pending(), 2U);
  EXPECT_EQ(place.refused(), 1U);
  EXPECT_TRUE(place.call(someone()).ok());
}

TEST(Gate, BehindACrowdOfStrangersAndAfterItFriendsComeIn) {
  Place place;
  place.open_gate();
  std::deque<Fd> crowd;
  for (int i = 0; i < 300; ++i) {
    crowd.push_back(raw_connection(place.at_));
    put(crowd.back(), Bytes(80, 0x55));
    if (i % 100 == 50) {
      EXPECT_TRUE(place.call(someone()).ok()) << i;
    }
  }
  place.wait_until([&] { return place.gate_->refused() == 300 && place.gate_->pending() == 0; });
  std::this_thread::sleep_for(50ms);  // the door is watched again
  EXPECT_TRUE(place.call(someone()).ok());
  place.wait_until([&] { return place.guests_.size() == 4; });  // whoever calls is convinced before the gate is
}

TEST(Gate, ItMayBeDestroyedWhileItCalls) {
  for (bool by_objection : {false, true}) {
    Place place;
    GateOptions options;
    if (by_objection)
      options.objection = [&place, text = std::string("a reason too long to be kept in place")](const Introduction&) {
        place.gate_.reset();
        return text;
      };
    else
      place.on_guest_ = [&] { place.gate_.reset(); };
    place.open_gate(options);
    auto idle = raw_connection(place.at_);
    auto guest = place.call(someone()).or_throw();
    place.wait_until([&] { return !place.gate_; });
    EXPECT_TRUE(get(idle).empty());
    EXPECT_EQ(place.guests_.size(), by_objection ? 0U : 1U);
    auto late = place.call(someone());
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, Code::peer_lost);
  }
}

TEST(Gate, WithoutDescriptorsItWaitsInsteadOfTurning) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers look at memory through a pipe, and need descriptors for it";
#endif
  Place place;
  place.open_gate();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::promise<Result<Guest>> end;
  std::unique_ptr<Call> call;
  auto processor_time = [] {
    timespec at{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return std::chrono::seconds(at.tv_sec) + std::chrono::nanoseconds(at.tv_nsec);
  };
  auto used = place.on_loop([&] {
    call = std::make_unique<Call>(
        place.loop_, place.at_, "", place.secret_, someone(),
        [&](Result<Guest> result) { end.set_value(std::move(result)); }, kLong);
    Fd next(open("/dev/null", O_RDONLY | O_CLOEXEC));  // all numbers below it are in use
    rlimit none{static_cast<rlim_t>(next.get()), before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    return processor_time();
  });
  std::this_thread::sleep_for(500ms);
  used = place.on_loop([&] { return processor_time() - used; });
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(used, 250ms) << "it turns as fast as it can";
  EXPECT_TRUE(end.get_future().get().ok());  // it waited outside
  place.on_loop([&] { call.reset(); });
  EXPECT_EQ(place.refused(), 0U);
}

/// Of every kind that a port may meet.
void misbehave(const Fd& socket, std::mt19937& random) {
  auto hello = Handshake::call(Secret::random(), someone()).take_output();
  switch (random() % 5) {
    case 0: {  // noise
      Bytes noise(1 + random() % 600);
      for (auto& byte : noise) byte = static_cast<std::uint8_t>(random());
      return put(socket, noise);
    }
    case 1:  // silence
      return;
    case 2:  // half a hello
      hello.resize(random() % hello.size());
      return put(socket, hello);
    case 3:  // a wrong secret
      return put(socket, hello);
    default: {  // the opening of a hello, and then noise for ever
      hello.resize(72 + random() % 1000, static_cast<std::uint8_t>(random()));
      return put(socket, hello);
    }
  }
}

TEST(Gate, TenThousandHostileConnectionsDoNotKeepAGoodOneOut) {
  constexpr std::size_t kHostile = 10'000;
  constexpr std::size_t kBurst = 500;
  constexpr std::size_t kHeldOpen = 500;  // more of them wait than the gate lets wait
  Place place;
  GateOptions options;
  place.open_gate(options);
  place.on_guest_ = [&] { place.guests_.back().socket.reset(); };  // a thousand descriptors must be enough
  auto before = mallinfo2().uordblks;
  std::size_t most_pending = 0;
  std::size_t most_memory = 0;
  auto watch = place.on_loop([&] {
    return place.loop_.every(1ms, [&] {
      most_pending = std::max(most_pending, place.gate_->pending());
      most_memory = std::max(most_memory, mallinfo2().uordblks);
    });
  });

  std::atomic<bool> over = false;
  std::atomic<std::size_t> good = 0;
  std::thread caller([&] {
    while (!over) {
      auto result = place.call(someone());
      if (result.ok())
        ++good;
      else
        EXPECT_EQ(result.error().code, Code::peer_lost) << result.error().message;  // pushed out by the crowd
      std::this_thread::sleep_for(1ms);
    }
  });
  std::mt19937 random(1);
  std::deque<Fd> sockets;
  for (std::size_t made = 1; made <= kHostile; ++made) {
    sockets.push_back(raw_connection(place.at_));
    misbehave(sockets.back(), random);
    if (sockets.size() > kHeldOpen) sockets.pop_front();
    if (made % kBurst == 0)  // or the kernel's queue overflows, and not all of them reach the gate
      place.wait_until([&] { return place.gate_->pending() + place.gate_->refused() >= made; });
  }
  over = true;
  caller.join();
  EXPECT_GT(good, 0U);
  EXPECT_TRUE(place.call(someone()).ok());
  sockets.clear();
  place.wait_until([&] { return place.gate_->refused() >= kHostile && place.gate_->pending() == 0; });
  place.on_loop([&] { place.loop_.cancel(watch); });
  EXPECT_LE(most_pending, options.most_pending);
  EXPECT_LT(most_memory, before + (8 << 20));
  EXPECT_GT(place.guests_.size(), 0U);
  EXPECT_LE(place.guests_.size(), good + 1);  // some may have been pushed out with their proof under way
}

}  // namespace
}  // namespace pliant::net
