#include "net/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/bytes.h"
#include "base/system.h"
#include "base/text.h"
#include "wire/messages.h"

namespace pliant::net {
namespace {

constexpr std::uint32_t kMagic = 0x48534c50;  // "PLSH"
enum Kind : std::uint8_t { kHello = 1, kChallenge = 2, kProof = 3 };

// docs/bytes.md shows these messages byte by byte.
constexpr std::size_t kOpening = 8;  // magic, version, kind, and the purpose or nothing
constexpr std::size_t kNumber = 32;
constexpr std::size_t kLengthAt = kOpening + 3 * sizeof(std::uint64_t) + sizeof(std::uint32_t) + kNumber;
constexpr std::size_t kHelloHead = kLengthAt + sizeof(std::uint32_t);  // then the name
constexpr std::size_t kUnsigned = kOpening + kNumber;                  // of the challenge
constexpr std::size_t kChallengeSize = kUnsigned + sizeof(Mac);
constexpr std::size_t kProofSize = kOpening + sizeof(Mac);

using Bytes = std::span<const std::uint8_t>;

Bytes bytes_of(std::string_view text) { return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}; }

void put_opening(ByteWriter& out, Kind kind, std::uint8_t purpose = 0) {
  out.put(kMagic), out.put(wire::kVersion), out.put(static_cast<std::uint8_t>(kind)), out.put(purpose);
}

void put_number(ByteWriter& out) {
  for (std::size_t i = 0; i < kNumber / sizeof(std::uint64_t); ++i) out.put(random_u64());
}

std::vector<std::uint8_t> encode_hello(const Introduction& who) {
  ByteWriter out;
  put_opening(out, kHello, static_cast<std::uint8_t>(who.purpose));
  out.put(who.from), out.put(who.to), out.put(who.view), out.put(who.lane);
  put_number(out);
  out.put_text(who.job);
  return std::move(out).take();
}

/// REQUIRES: a whole hello.
Introduction decode_hello(Bytes hello) {
  Introduction who;
  who.purpose = static_cast<Purpose>(hello[kOpening - 1]);
  ByteReader in(hello.subspan(kOpening));
  who.from = in.get<std::uint64_t>();
  who.to = in.get<std::uint64_t>();
  who.view = in.get<std::uint64_t>();
  who.lane = in.get<std::uint32_t>();
  who.job = ByteReader(hello.subspan(kLengthAt)).get_text(wire::kMaxName);
  return who;
}

Mac answerers_proof(const Secret& secret, Bytes hello, Bytes challenge) {
  const Bytes parts[] = {bytes_of("pliant answerer"), hello, challenge.first(kUnsigned)};
  return secret.sign(parts);
}

Mac callers_proof(const Secret& secret, Bytes hello, Bytes challenge) {
  const Bytes parts[] = {bytes_of("pliant caller"), hello, challenge};
  return secret.sign(parts);
}

/// REQUIRES: it is there.
Mac mac_at(Bytes message, std::size_t at) { return ByteReader(message.subspan(at)).get<Mac>(); }

}  // namespace

Handshake::Handshake(const Secret& secret, State state, std::string job) : secret_(secret), job_(std::move(job)) {
  expect(state);
}

Handshake Handshake::call(const Secret& secret, Introduction who) {
  PLIANT_ASSERT(who.job.size() <= wire::kMaxName);
  Handshake shake(secret, State::challenge_wanted, who.job);
  shake.hello_ = shake.output_ = encode_hello(who);
  shake.who_ = std::move(who);
  return shake;
}

Handshake Handshake::answer(const Secret& secret, std::string job) {
  return {secret, State::hello_wanted, std::move(job)};
}

std::vector<std::uint8_t> Handshake::take_output() { return std::exchange(output_, {}); }

bool Handshake::done() const { return state_ == State::done; }

const Introduction& Handshake::introduction() const {
  PLIANT_ASSERT(done());
  return who_;
}

void Handshake::expect(State state) {
  state_ = state;
  incoming_.clear();
  wanted_ = kOpening;
}

Result<std::size_t> Handshake::feed(std::span<const std::uint8_t> bytes) {
  if (state_ == State::failed) return Error{Code::protocol, "more of a handshake that has failed"};
  std::size_t used = 0;
  while (!done()) {
    auto part = bytes.subspan(used, std::min(wanted_ - incoming_.size(), bytes.size() - used));
    incoming_.insert(incoming_.end(), part.begin(), part.end());
    used += part.size();
    if (incoming_.size() < wanted_) break;
    if (auto status = proceed(); !status.ok()) {
      state_ = State::failed;
      output_.clear();
      return status.error();
    }
  }
  return used;
}

Status Handshake::proceed() {
  if (wanted_ == kOpening) return check_opening();
  if (state_ == State::challenge_wanted) return take_challenge();
  if (state_ == State::proof_wanted) return take_proof();
  auto name = ByteReader(Bytes(incoming_).subspan(kLengthAt)).get<std::uint32_t>();
  if (name > wire::kMaxName) return Error{Code::protocol, fmt::format("a job's name of {} bytes", name)};
  if (incoming_.size() == kHelloHead + name) return take_hello();
  wanted_ = kHelloHead + name;
  return {};
}

Status Handshake::check_opening() {
  ByteReader in(incoming_);
  auto magic = in.get<std::uint32_t>();
  auto version = in.get<std::uint16_t>();
  auto kind = in.get<std::uint8_t>();
  auto purpose = in.get<std::uint8_t>();
  if (magic != kMagic) return Error{Code::protocol, "this is no Pliant handshake"};
  if (version != wire::kVersion)
    return Error{Code::refused,
                 fmt::format("the other side speaks protocol version {}, this is {}", version, wire::kVersion)};
  bool hello = state_ == State::hello_wanted;
  auto expected = hello ? kHello : state_ == State::challenge_wanted ? kChallenge : kProof;
  if (kind != expected)
    return Error{Code::protocol, fmt::format("message {} of a handshake in the place of {}", kind, int{expected})};
  auto last = hello ? static_cast<std::uint8_t>(Purpose::request) : 0;
  if (purpose > last || (hello && purpose == 0))
    return Error{Code::protocol, fmt::format("unknown purpose {}", purpose)};
  wanted_ = hello ? kHelloHead : expected == kChallenge ? kChallengeSize : kProofSize;
  return {};
}

Status Handshake::take_hello() {
  who_ = decode_hello(incoming_);
  if (who_.job != job_)
    return Error{Code::refused, fmt::format("the caller belongs to job '{}', this is '{}'", printable(who_.job), job_)};
  hello_ = incoming_;
  ByteWriter out;
  put_opening(out, kChallenge);
  put_number(out);
  challenge_ = std::move(out).take();
  auto proof = answerers_proof(secret_, hello_, challenge_);
  challenge_.insert(challenge_.end(), proof.begin(), proof.end());
  output_ = challenge_;
  expect(State::proof_wanted);
  return {};
}

Status Handshake::take_challenge() {
  challenge_ = incoming_;
  if (!equal(mac_at(challenge_, kUnsigned), answerers_proof(secret_, hello_, challenge_)))
    return Error{Code::refused, "whoever answers does not know this job's secret"};
  ByteWriter out;
  put_opening(out, kProof);
  out.put(callers_proof(secret_, hello_, challenge_));
  output_ = std::move(out).take();
  expect(State::done);
  return {};
}

Status Handshake::take_proof() {
  if (!equal(mac_at(incoming_, kOpening), callers_proof(secret_, hello_, challenge_)))
    return Error{Code::refused, "the caller does not know this job's secret"};
  expect(State::done);
  return {};
}

}  // namespace pliant::net
