// Both sides of a handshake against whatever comes, and an honest pair with somebody in between who changes bytes.
//   byte 0: which of the three; byte 1: how many bytes come at a time; the rest: what comes, or how it is changed
#include <algorithm>

#include "fuzz/fuzz.h"
#include "net/handshake.h"

namespace pliant::fuzz {
namespace {

using net::Handshake;
using Input = std::span<const std::uint8_t>;

const net::Secret& secret() {
  static const auto kSecret = net::Secret::random();
  return kSecret;
}

Handshake caller() { return Handshake::call(secret(), {net::Purpose::data, "job", 1, 2, 3, 4}); }
Handshake answerer() { return Handshake::answer(secret(), "job"); }

/// False once it has refused.
bool feed(Handshake& shake, Input bytes, std::size_t at_a_time) {
  while (!bytes.empty() && !shake.done()) {
    auto part = bytes.first(std::min(at_a_time, bytes.size()));
    auto used = shake.feed(part);
    if (!used.ok()) {
      PLIANT_ASSERT(used.error().message.find('\n') == std::string::npos);
      PLIANT_ASSERT(shake.take_output().empty());
      return false;
    }
    PLIANT_ASSERT(used.value() == part.size() || shake.done());
    bytes = bytes.subspan(part.size());
  }
  return true;
}

/// Nobody is convinced without the secret.
void face_anybody(Handshake shake, Input bytes, std::size_t at_a_time) {
  (void)feed(shake, bytes, at_a_time);
  PLIANT_ASSERT(!shake.done());
  PLIANT_ASSERT(shake.take_output().size() < 600);
}

/// Changes the message by the bytes at the front of `changes`; true if anything is different now.
bool change(Bytes& message, Input& changes) {
  auto size = std::min(message.size(), changes.size());
  bool changed = false;
  for (std::size_t i = 0; i < size; ++i) {
    message[i] ^= changes[i];
    changed |= changes[i] != 0;
  }
  changes = changes.subspan(size);
  return changed;
}

/// The answerer is convinced if, and only if, nobody has touched anything.
void meet_with_somebody_between(Input changes, std::size_t at_a_time) {
  auto calls = caller();
  auto answers = answerer();
  bool changed = false;
  for (auto* to : {&answers, &calls, &answers}) {
    auto message = (to == &answers ? calls : answers).take_output();
    changed |= change(message, changes);
    if (!feed(*to, message, at_a_time)) break;
  }
  PLIANT_ASSERT(answers.done() != changed);
}

}  // namespace

std::vector<Bytes> seeds() {
  Bytes hello = {0, 100};
  auto calls = caller();
  auto text = calls.take_output();
  hello.insert(hello.end(), text.begin(), text.end());
  auto answers = answerer();
  (void)answers.feed(text).ok();
  Bytes answer = {1, 1};
  text = answers.take_output();
  answer.insert(answer.end(), text.begin(), text.end());
  return {{2, 7}, Bytes(300, 2), hello, answer};
}

void run(std::span<const std::uint8_t> input) {
  if (input.size() < 2) return;
  auto at_a_time = std::max<std::size_t>(input[1], 1);
  auto rest = input.subspan(2);
  if (input[0] % 3 == 0)
    face_anybody(answerer(), rest, at_a_time);
  else if (input[0] % 3 == 1)
    face_anybody(caller(), rest, at_a_time);
  else
    meet_with_somebody_between(rest, at_a_time);
}

}  // namespace pliant::fuzz
