#include "net/handshake.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
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
  Bytes hello, answer, proof;

  /// `change` may alter each message (0 to 2) on its way. Ends where one side refuses.
  void run(const std::function<void(int, Bytes&)>& change = [](int, Bytes&) {}) {
    hello = caller.take_output();
    auto sent = hello;
    change(0, sent);
    if (!answerer.feed(sent).ok()) return;
    sent = answer = answerer.take_output();
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
      Introduction who{purpose, std::string(length, 'n'), UINT64_MAX, 0, 1, UINT32_MAX, Protection::plain};
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
  auto answer = meeting.answerer.take_output();
  auto size = answer.size();
  answer.push_back(7);
  EXPECT_EQ(meeting.caller.feed(answer).or_throw(), size);
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
  const Bytes* messages[] = {&honest.hello, &honest.answer, &honest.proof};
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
  const Bytes* messages[] = {&honest.hello, &honest.answer, &honest.proof};
  for (int which = 0; which < 3; ++which)
    for (std::size_t size = 0; size < messages[which]->size(); ++size) {
      Meeting meeting;
      meeting.run([&](int message, Bytes& bytes) {
        if (message == which) bytes.resize(std::min(size, bytes.size()));
      });
      EXPECT_FALSE(meeting.answerer.done());
    }
}

/// Whether what one end seals opens at the other.
bool understand(ConnectionKeys from, ConnectionKeys to) {
  Bytes text(10, 5), record(RecordSealer::size_of(10)), plain(10);
  const auto part = std::as_bytes(std::span(text));
  RecordSealer(std::move(from.send)).seal({&part, 1}, record);
  RecordOpener opener(std::move(to.receive));
  return opener.open(std::span(record).subspan(RecordKey::kHead), reinterpret_cast<std::byte*>(plain.data())).ok() &&
         plain == text;
}

TEST(Handshake, BothSidesHaveTheKeysOfThisConnectionAlone) {
  Meeting meeting, other;
  meeting.run();
  other.run();
  EXPECT_TRUE(understand(meeting.caller.take_keys(), meeting.answerer.take_keys()));
  Meeting again;
  again.run();
  EXPECT_TRUE(understand(again.answerer.take_keys(), again.caller.take_keys()));
  Meeting spliced;
  spliced.run();
  EXPECT_FALSE(understand(spliced.caller.take_keys(), other.answerer.take_keys()));
}

TEST(Handshake, AnotherSecretIsRefused) {
  auto caller = Handshake::call(Secret::random(), someone());
  auto answerer = Handshake::answer(secret(), "job");
  auto refusal = refusal_of(answerer, caller.take_output());
  EXPECT_EQ(refusal.code, Code::refused);
  EXPECT_TRUE(mentions(refusal, "does not know this job's secret"));
}

/// A server that knows no secret, and offers a certificate in its place.
class Impostor {
 public:
  Impostor() : context_(SSL_CTX_new(TLS_server_method())), key_(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")) {
    auto* certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key_);
    X509_sign(certificate, key_, nullptr);
    SSL_CTX_use_certificate(context_, certificate);
    SSL_CTX_use_PrivateKey(context_, key_);
    X509_free(certificate);
  }
  ~Impostor() {
    EVP_PKEY_free(key_);
    SSL_CTX_free(context_);
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;

  Bytes answer_to(const Bytes& hello) {
    auto* ssl = SSL_new(context_);
    auto *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, in, out);
    BIO_write(in, hello.data(), static_cast<int>(hello.size()));
    SSL_accept(ssl);
    char* said = nullptr;
    auto size = BIO_get_mem_data(out, &said);
    Bytes answer(said, said + size);
    SSL_free(ssl);
    return answer;
  }

 private:
  SSL_CTX* context_;
  EVP_PKEY* key_;
};

TEST(Handshake, ACertificateIsNoProof) {
  auto caller = Handshake::call(secret(), someone());
  auto answer = Impostor().answer_to(caller.take_output());
  ASSERT_GT(answer.size(), 300U) << "the impostor did not answer";
  (void)refusal_of(caller, answer);
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
  EXPECT_EQ(refusal_of(caller, overheard.answer).code, Code::refused);
}

TEST(Handshake, WhatIsSentBackIsRefused) {
  Meeting meeting;
  auto hello = meeting.caller.take_output();
  give(meeting.answerer, hello);
  auto answer = meeting.answerer.take_output();
  EXPECT_EQ(refusal_of(meeting.caller, hello).code, Code::protocol);
  EXPECT_EQ(refusal_of(meeting.answerer, answer).code, Code::protocol);
}

/// The introduction as it stands in a hello; bytes of it may be changed.
std::uint8_t* introduction_in(Bytes& hello) {
  const std::string magic = "PLSH";
  auto at = std::search(hello.begin(), hello.end(), magic.begin(), magic.end());
  EXPECT_NE(at, hello.end());
  return &*at;
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
  std::memcpy(introduction_in(hello) + 4, &version, sizeof(version));
  auto refusal = refusal_of(meeting.answerer, hello);
  EXPECT_EQ(refusal.code, Code::refused);
  EXPECT_TRUE(mentions(refusal, "speaks protocol version 77, this is " + std::to_string(wire::kVersion)))
      << refusal.message;
}

TEST(Handshake, OtherProtocolsAreToldFromTheirFirstBytes) {
  for (std::string text : {"GET / HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH", "\x16\x03\x02\x01", "\x15\x03\x01", "PLSH"}) {
    Bytes bytes(text.begin(), text.end());
    auto answerer = Handshake::answer(secret(), "job");
    EXPECT_EQ(refusal_of(answerer, bytes).code, Code::protocol);
    auto caller = Handshake::call(secret(), someone());
    (void)caller.take_output();
    EXPECT_EQ(refusal_of(caller, bytes).code, Code::protocol);
  }
}

TEST(Handshake, WhatIsTooLongIsRefusedBeforeItComes) {
  auto answerer = Handshake::answer(secret(), "job");
  EXPECT_EQ(refusal_of(answerer, {22, 3, 1, 0x40, 0}).code, Code::protocol);
}

TEST(Handshake, AnIntroductionThatMakesNoSenseIsRefused) {
  constexpr std::size_t kPurpose = 6, kProtection = 7, kLength = 36;  // in an introduction
  for (auto at : {kPurpose, kProtection, kLength})
    for (int value : {0, 5, 255}) {
      Meeting meeting;
      auto hello = meeting.caller.take_output();
      introduction_in(hello)[at] = static_cast<std::uint8_t>(value);
      EXPECT_EQ(refusal_of(meeting.answerer, hello).code, Code::protocol) << at;
    }
}

}  // namespace
}  // namespace pliant::net
