#include "bench/hosts/stranger/lies.h"

#include <cstring>
#include <utility>

#include "wire/messages.h"

namespace pliant::stranger {
namespace {

constexpr std::uint32_t kMagic = 0x48534c50;       // "PLSH"
constexpr std::uint32_t kFrameMagic = 0x4d524650;  // "PFRM"
constexpr std::uint8_t kHello = 1, kProof = 3;
constexpr std::size_t kHelloHead = 72;
constexpr std::size_t kLengthAt = kHelloHead - sizeof(std::uint32_t);

template <class T>
void put(Bytes& out, T value) {
  auto at = out.size();
  out.resize(at + sizeof(T));
  std::memcpy(out.data() + at, &value, sizeof(T));
}

void append(Bytes& out, const Bytes& more) { out.insert(out.end(), more.begin(), more.end()); }

}  // namespace

Liar::Liar(std::string job, std::vector<Overheard> overheard, std::uint64_t seed)
    : job_(std::move(job)), overheard_(std::move(overheard)), random_(seed) {}

std::size_t Liar::below(std::size_t limit) { return random_() % limit; }

Bytes Liar::random_bytes(std::size_t size) {
  Bytes out;
  while (out.size() < size) put(out, static_cast<std::uint64_t>(random_()));
  out.resize(size);
  return out;
}

Bytes Liar::opening(std::uint8_t kind, std::uint8_t purpose, std::uint16_t version) const {
  Bytes out;
  put(out, kMagic), put(out, version), put(out, kind), put(out, purpose);
  return out;
}

Bytes Liar::hello(std::uint64_t from, std::uint64_t worker, std::uint64_t view, const std::string& job,
                  std::uint16_t version) {
  auto out = opening(kHello, static_cast<std::uint8_t>(1 + below(4)), version);
  put(out, from), put(out, worker), put(out, view), put(out, static_cast<std::uint32_t>(below(48)));
  append(out, random_bytes(32));
  put(out, static_cast<std::uint32_t>(job.size()));
  out.insert(out.end(), job.begin(), job.end());
  return out;
}

/// Any 32 bytes are as good as a proof under another secret.
Bytes Liar::proof() {
  auto out = opening(kProof, 0, wire::kVersion);
  append(out, random_bytes(32));
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
    lie.first = hello(1, 0, 0, job_, wire::kVersion);
    std::uint32_t length = below(2) ? UINT32_MAX : wire::kMaxName + 1;
    std::memcpy(lie.first.data() + kLengthAt, &length, sizeof(length));
  } else {  // a frame of data, as if there were no handshake
    put(lie.first, kFrameMagic), put(lie.first, std::uint16_t{1}), put(lie.first, std::uint16_t{0});
    put(lie.first, UINT32_MAX);
    append(lie.first, random_bytes(4096));
  }
  return lie;
}

Lie Liar::misdirected() {
  Lie lie{Kind::misdirected};
  if (below(2))
    lie.first = hello(1, 0, 0, "another", wire::kVersion);
  else
    lie.first = hello(1, 0, 0, job_, static_cast<std::uint16_t>(wire::kVersion + 1 + below(100)));
  return lie;
}

Lie Liar::tell(Kind kind, const std::string& to) {
  switch (kind) {
    case Kind::noise:
      return {kind, random_bytes(8 + below(1000))};
    case Kind::wrong_secret:
      return {kind, hello(below(8), below(8), 0, job_, wire::kVersion), proof()};
    case Kind::replay:
      return replay(to);
    case Kind::truncated: {
      auto words = hello(below(8), below(8), 0, job_, wire::kVersion);
      words.resize(1 + below(words.size() - 1));
      return {kind, words, {}, below(2) == 0};
    }
    case Kind::silent:
      return {kind};
    case Kind::oversized:
      return oversized();
    case Kind::unknown:
      return {kind, hello(random_(), random_(), random_(), job_, wire::kVersion), proof()};
    case Kind::misdirected:
      return misdirected();
  }
  return {};
}

}  // namespace pliant::stranger
