#include "bench/hosts/stranger/lies.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "net/handshake.h"
#include "wire/messages.h"

namespace pliant::stranger {
namespace {

constexpr std::string_view kMagic = "PLSH";
constexpr std::uint32_t kFrameMagic = 0x4d524650;  // "PFRM"
// Of an introduction.
constexpr std::size_t kVersionAt = 4, kLengthAt = 36;

template <class T>
void put(Bytes& out, T value) {
  auto at = out.size();
  out.resize(at + sizeof(T));
  std::memcpy(out.data() + at, &value, sizeof(T));
}

void append(Bytes& out, const Bytes& more) { out.insert(out.end(), more.begin(), more.end()); }

/// A field of the introduction in a hello.
template <class T>
void change(Bytes& hello, std::size_t at, T value) {
  if (const auto* introduction = introduction_in(hello))
    std::memcpy(hello.data() + (introduction - hello.data()) + at, &value, sizeof(value));
}

}  // namespace

const std::uint8_t* introduction_in(std::span<const std::uint8_t> hello) {
  if (hello.size() < 3 || hello[0] != 22 || hello[1] != 3 || hello[2] != 1) return nullptr;
  auto at = std::search(hello.begin(), hello.end(), kMagic.begin(), kMagic.end());
  return at == hello.end() ? nullptr : &*at;
}

Liar::Liar(std::string job, std::vector<Overheard> overheard, std::uint64_t seed)
    : job_(std::move(job)), overheard_(std::move(overheard)), random_(seed) {}

std::size_t Liar::below(std::size_t limit) { return random_() % limit; }

Bytes Liar::random_bytes(std::size_t size) {
  Bytes out;
  while (out.size() < size) put(out, static_cast<std::uint64_t>(random_()));
  out.resize(size);
  return out;
}

Bytes Liar::hello(std::uint64_t from, std::uint64_t worker, std::uint64_t view, const std::string& job) {
  static const auto kSecret = net::Secret::random();
  auto purpose = static_cast<net::Purpose>(1 + below(4));
  net::Introduction who{purpose, job, from, worker, view, static_cast<std::uint32_t>(below(48))};
  return net::Handshake::call(kSecret, std::move(who)).take_output();
}

/// Any bytes of the right size are as good as a Finished under another secret.
Bytes Liar::proof() {
  constexpr std::uint8_t kSize = 53;
  Bytes out = {23, 3, 3, 0, kSize};
  append(out, random_bytes(kSize));
  return out;
}

Lie Liar::replay(const std::string& to) {
  std::vector<const Overheard*> fitting;
  for (const auto& one : overheard_)
    if (one.to == to) fitting.push_back(&one);
  if (fitting.empty())  // said to somebody else, or nobody has listened
    for (const auto& one : overheard_) fitting.push_back(&one);
  if (fitting.empty()) return tell(Kind::wrong_secret, to);
  const auto& one = *fitting[below(fitting.size())];
  return {Kind::replay, one.hello, one.proof};
}

Lie Liar::oversized() {
  Lie lie{Kind::oversized};
  if (below(2)) {
    lie.first = hello(1, 0, 0, job_);
    std::uint32_t length = below(2) ? UINT32_MAX : wire::kMaxName + 1;
    change(lie.first, kLengthAt, length);
  } else if (below(2)) {  // a message of 64 KiB
    lie.first = {22, 3, 1, 0xff, 0xff};
    append(lie.first, random_bytes(4096));
  } else {  // a frame of data, as if there were no handshake
    put(lie.first, kFrameMagic), put(lie.first, std::uint16_t{1}), put(lie.first, std::uint16_t{0});
    put(lie.first, UINT32_MAX);
    append(lie.first, random_bytes(4096));
  }
  return lie;
}

Lie Liar::misdirected() {
  Lie lie{Kind::misdirected};
  bool other_job = below(2);
  lie.first = hello(1, 0, 0, other_job ? "another" : job_);
  if (!other_job) change(lie.first, kVersionAt, static_cast<std::uint16_t>(wire::kVersion + 1 + below(100)));
  return lie;
}

Lie Liar::tell(Kind kind, const std::string& to) {
  switch (kind) {
    case Kind::noise:
      return {kind, random_bytes(8 + below(1000))};
    case Kind::wrong_secret:
      return {kind, hello(below(8), below(8), 0, job_), proof()};
    case Kind::replay:
      return replay(to);
    case Kind::truncated: {
      auto words = hello(below(8), below(8), 0, job_);
      words.resize(1 + below(words.size() - 1));
      return {kind, words, {}, below(2) == 0};
    }
    case Kind::silent:
      return {kind};
    case Kind::oversized:
      return oversized();
    case Kind::unknown:
      return {kind, hello(random_(), random_(), random_(), job_), proof()};
    case Kind::misdirected:
      return misdirected();
  }
  return {};
}

}  // namespace pliant::stranger
