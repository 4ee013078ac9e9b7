#include "net/handshake.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "wire/messages.h"

namespace pliant::net {
namespace {

using Bytes = std::vector<std::uint8_t>;

const Secret& secret() {
  static const auto kSecret = Secret::random();
  return kSecret;
}

Introduction someone() { return {Purpose::data, "job", 3, 5, 0x1234'5678'9abc'def0, 2}; }

/// Feeds all of it; the handshake must want all of it.
void give(Handshake& to, const Bytes& bytes) { EXPECT_EQ(to.feed(bytes).or_throw(), bytes.size()); }

Error refusal_of(Handshake& to, const Bytes& bytes) {
  auto result = to.feed(bytes);
  EXPECT_FALSE(result.ok());
  EXPECT_FALSE(to.done());
  EXPECT_TRUE(to.take_output().empty()) << "something is revealed";
  EXPECT_FALSE(to.feed(bytes).ok()) << "a second chance";
  return result.error();
}

bool mentions(const Error& error, const std::string& words) { return error.message.find(words) != std::string::npos; }

struct Meeting {
  Handshake caller = Handshake::call(secret(), someone());
  Handshake answerer = Handshake::answer(secret(), "job");
  Bytes hello, challenge, proof;

  /// `change` may alter each message (0 to 2) on its way. Ends where one side refuses.
  void run(const std::function<void(int, Bytes&)>& change = [](int, Bytes&) {}) {
    hello = caller.take_output();
    auto sent = hello;
    change(0, sent);
    if (!answerer.feed(sent).ok()) return;
    sent = challenge = answerer.take_output();
    change(1, sent);
    if (!caller.feed(sent).ok()) return;
    sent = proof = caller.take_output();
    change(2, sent);
    (void)answerer.feed(sent).ok();
  }
};

TEST(Handshake, BothSidesAreConvinced) {
  Meeting meeting;
  meeting.run();
  ASSERT_TRUE(meeting.caller.done());
  ASSERT_TRUE(meeting.answerer.done());
  EXPECT_EQ(meeting.answerer.introduction(), someone());
  EXPECT_EQ(meeting.caller.introduction(), someone());
  EXPECT_TRUE(meeting.caller.take_output().empty());
  EXPECT_TRUE(meeting.answerer.take_output().empty());
}

TEST(Handshake, AnyPurposeAndNameArrive) {
  for (auto purpose : {Purpose::letters, Purpose::data, Purpose::coordinator, Purpose::request})
    for (std::size_t length : {std::size_t{0}, std::size_t{1}, wire::kMaxName}) {
      Introduction who{purpose, std::string(length, 'n'), UINT64_MAX, 0, 1, UINT32_MAX};
      auto caller = Handshake::call(secret(), who);
      auto answerer = Handshake::answer(secret(), who.job);
      give(answerer, caller.take_output());
      give(caller, answerer.take_output());
      give(answerer, caller.take_output());
      EXPECT_EQ(answerer.introduction(), who);
    }
}

TEST(Handshake, OneByteAtATime) {
  Meeting meeting;
  auto drip = [](Handshake& to, const Bytes& bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      EXPECT_FALSE(to.done());
      EXPECT_TRUE(to.take_output().empty()) << "said something before it had heard everything";
      EXPECT_EQ(to.feed({}).or_throw(), 0U);
      EXPECT_EQ(to.feed({&bytes[i], 1}).or_throw(), 1U);
    }
  };
  drip(meeting.answerer, meeting.caller.take_output());
  drip(meeting.caller, meeting.answerer.take_output());
  drip(meeting.answerer, meeting.caller.take_output());
  EXPECT_TRUE(meeting.caller.done());
  EXPECT_TRUE(meeting.answerer.done());
}

TEST(Handshake, WhatFollowsTheProofIsLeftAlone) {
  Meeting meeting;
  give(meeting.answerer, meeting.caller.take_output());
  auto challenge = meeting.answerer.take_output();
  auto size = challenge.size();
  challenge.push_back(7);
  EXPECT_EQ(meeting.caller.feed(challenge).or_throw(), size);
  auto proof = meeting.caller.take_output();
  size = proof.size();
  proof.insert(proof.end(), 1000, 9);
  EXPECT_EQ(meeting.answerer.feed(proof).or_throw(), size);
  EXPECT_TRUE(meeting.answerer.done());
  EXPECT_EQ(meeting.answerer.feed(proof).or_throw(), 0U);
}

TEST(Handshake, EveryFlippedBitIsNoticed) {
  Meeting honest;
  honest.run();
  const Bytes* messages[] = {&honest.hello, &honest.challenge, &honest.proof};
  for (int which = 0; which < 3; ++which)
    for (std::size_t bit = 0; bit < 8 * messages[which]->size(); ++bit) {
      Meeting meeting;
      meeting.run([&](int message, Bytes& bytes) {
        if (message == which) bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      });
      EXPECT_FALSE(meeting.answerer.done()) << "message " << which << ", bit " << bit;
      EXPECT_EQ(meeting.caller.done(), which == 2) << "message " << which << ", bit " << bit;
    }
}

TEST(Handshake, EveryMissingEndIsMissed) {
  Meeting honest;
  honest.run();
  const Bytes* messages[] = {&honest.hello, &honest.challenge, &honest.proof};
  for (int which = 0; which < 3; ++which)
    for (std::size_t size = 0; size < messages[which]->size(); ++size) {
      Meeting meeting;
      meeting.run([&](int message, Bytes& bytes) {
        if (message == which) bytes.resize(std::min(size, bytes.size()));
      });
      EXPECT_FALSE(meeting.answerer.done());
    }
}

TEST(Handshake, AnotherSecretIsRefusedByBothSides) {
  auto other = Secret::random();
  auto caller = Handshake::call(other, someone());
  auto answerer = Handshake::answer(secret(), "job");
  give(answerer, caller.take_output());
  auto refusal = refusal_of(caller, answerer.take_output());
  EXPECT_EQ(refusal.code, Code::refused);
  EXPECT_TRUE(mentions(refusal, "does not know this job's secret"));
}

TEST(Handshake, ACallerThatMakesUpAProofIsRefused) {
  Meeting meeting;
  Meeting other;
  other.run();
  give(meeting.answerer, meeting.caller.take_output());
  (void)meeting.answerer.take_output();
  auto refusal = refusal_of(meeting.answerer, other.proof);
  EXPECT_EQ(refusal.code, Code::refused);
  EXPECT_TRUE(mentions(refusal, "does not know this job's secret"));
}

TEST(Handshake, WhatWasOverheardIsWorthNothing) {
  Meeting overheard;
  overheard.run();
  ASSERT_TRUE(overheard.answerer.done());

  auto answerer = Handshake::answer(secret(), "job");
  give(answerer, overheard.hello);
  (void)answerer.take_output();
  EXPECT_EQ(refusal_of(answerer, overheard.proof).code, Code::refused);

  auto both = overheard.hello;
  both.insert(both.end(), overheard.proof.begin(), overheard.proof.end());
  auto at_once = Handshake::answer(secret(), "job");
  EXPECT_EQ(refusal_of(at_once, both).code, Code::refused);

  auto caller = Handshake::call(secret(), someone());
  (void)caller.take_output();
  EXPECT_EQ(refusal_of(caller, overheard.challenge).code, Code::refused);
}

TEST(Handshake, WhatIsSentBackIsRefused) {
  Meeting meeting;
  auto hello = meeting.caller.take_output();
  give(meeting.answerer, hello);
  auto challenge = meeting.answerer.take_output();
  EXPECT_EQ(refusal_of(meeting.caller, hello).code, Code::protocol);
  EXPECT_EQ(refusal_of(meeting.answerer, challenge).code, Code::protocol);

  // The answerer's own proof in the caller's place: each direction has its own.
  Meeting again;
  give(again.answerer, again.caller.take_output());
  challenge = again.answerer.take_output();
  Bytes proof(challenge.begin(), challenge.begin() + 8);
  proof[6] = 3;
  proof.insert(proof.end(), challenge.end() - 32, challenge.end());
  EXPECT_EQ(refusal_of(again.answerer, proof).code, Code::refused);
}

TEST(Handshake, AnotherJobIsRefusedWithWords) {
  auto caller = Handshake::call(secret(), {Purpose::letters, "other\njob\x1b[2J"});
  auto answerer = Handshake::answer(secret(), "job");
  auto refusal = refusal_of(answerer, caller.take_output());
  EXPECT_EQ(refusal.code, Code::refused);
  EXPECT_TRUE(mentions(refusal, "'other job [2J', this is 'job'")) << refusal.message;
}

TEST(Handshake, AnotherVersionIsRefusedWithWords) {
  Meeting meeting;
  auto hello = meeting.caller.take_output();
  std::uint16_t version = 77;
  std::memcpy(hello.data() + 4, &version, sizeof(version));
  hello.resize(8);  // the opening is enough: what follows may look different in other versions
  auto refusal = refusal_of(meeting.answerer, hello);
  EXPECT_EQ(refusal.code, Code::refused);
  EXPECT_TRUE(mentions(refusal, "speaks protocol version 77, this is " + std::to_string(wire::kVersion)))
      << refusal.message;
}

TEST(Handshake, StrangersAreToldFromTheirFirstBytes) {
  for (std::string text : {"GET / HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH", "\x16\x03\x01\x02hello", "PLNTPLNT"}) {
    Bytes bytes(text.begin(), text.end());
    auto answerer = Handshake::answer(secret(), "job");
    EXPECT_EQ(refusal_of(answerer, bytes).code, Code::protocol);
    auto caller = Handshake::call(secret(), someone());
    (void)caller.take_output();
    EXPECT_EQ(refusal_of(caller, bytes).code, Code::protocol);
  }
}

TEST(Handshake, ANameThatIsTooLongIsRefusedBeforeItComes) {
  Meeting meeting;
  auto hello = meeting.caller.take_output();
  hello.resize(hello.size() - 3);  // the head, up to the length of "job"
  for (std::uint32_t length : {std::uint32_t{wire::kMaxName + 1}, UINT32_MAX}) {
    std::memcpy(hello.data() + hello.size() - 4, &length, sizeof(length));
    auto answerer = Handshake::answer(secret(), "job");
    EXPECT_EQ(refusal_of(answerer, hello).code, Code::protocol);
  }
}

TEST(Handshake, UnknownPurposesAreRefused) {
  Meeting meeting;
  auto hello = meeting.caller.take_output();
  for (int purpose : {0, 5, 255}) {
    hello[7] = static_cast<std::uint8_t>(purpose);
    auto answerer = Handshake::answer(secret(), "job");
    EXPECT_EQ(refusal_of(answerer, hello).code, Code::protocol);
  }
}

}  // namespace
}  // namespace pliant::net
