// Somebody in the path between two ends of a connection who changes what passes: bits, pieces that are left out, moved,
// repeated, cut off, or taken from another connection. PLIANT_MUTATIONS says how often (3000).
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <random>

#include "net/handshake.h"
#include "net/line.h"

namespace pliant::net {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Random = std::mt19937;

constexpr std::uint64_t kMessages = 4;  // that each end sends

enum class Change { none, flip, leave_out, swap, repeat, cut_off, splice };

/// Passes one direction's bytes on, and changes them once, from byte `at` on.
class Wire {
 public:
  Wire(Change change, std::size_t at, std::size_t size, Bytes other)
      : change_(change), at_(at), size_(size), other_(std::move(other)) {}

  Bytes pass(const Bytes& bytes) {
    auto begin = passed_.size();
    passed_.insert(passed_.end(), bytes.begin(), bytes.end());
    if (cut_) return {};
    if (change_ == Change::none || done_ || begin + bytes.size() <= at_) return bytes;
    done_ = true;
    auto out = changed(bytes, at_ - begin);
    altered_ = cut_ || out != bytes;
    return out;
  }
  /// What was said through it, as it was meant.
  const Bytes& passed() const { return passed_; }
  bool altered() const { return altered_; }

 private:
  Bytes changed(Bytes bytes, std::size_t from) {
    auto at = bytes.begin() + static_cast<std::ptrdiff_t>(from);
    auto size = std::min<std::size_t>(size_, bytes.size() - from);
    auto end = at + static_cast<std::ptrdiff_t>(size);
    switch (change_) {
      case Change::none:
        break;
      case Change::flip:
        *at ^= static_cast<std::uint8_t>(1U << size_ % 8);
        break;
      case Change::leave_out:
        bytes.erase(at, end);
        break;
      case Change::swap:
        std::rotate(at, at + static_cast<std::ptrdiff_t>(size / 2), end);
        break;
      case Change::repeat: {
        Bytes again(at, end);
        bytes.insert(end, again.begin(), again.end());
        break;
      }
      case Change::cut_off:
        bytes.erase(at, bytes.end());
        cut_ = true;
        break;
      case Change::splice:  // the same place of another connection
        for (std::size_t i = 0; i < size && at_ + i < other_.size(); ++i)
          at[static_cast<std::ptrdiff_t>(i)] = other_[at_ + i];
        break;
    }
    return bytes;
  }

  const Change change_;
  const std::size_t at_, size_;
  const Bytes other_;
  Bytes passed_;
  bool done_ = false, cut_ = false, altered_ = false;
};

/// A line, and the end of its connection that the path holds.
struct End {
  explicit End(ConnectionKeys keys) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    outside = Fd(ends[1]);
    line = Line::remote(Fd(ends[0]), {}, std::move(keys));
  }
  Bytes said() const {
    Bytes bytes(65536);
    auto size = recv(outside.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return bytes;
  }
  void hears(const Bytes& bytes) const { (void)::send(outside.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// The numbers that came, until nothing more does.
  std::vector<std::uint64_t> received() {
    std::vector<std::uint64_t> numbers;
    for (;;) {
      auto got = line.receive();
      if (!got.ok() || !got.value()) return numbers;
      const auto* start = std::get_if<wire::Start>(&got.value()->message);
      EXPECT_TRUE(start) << "a message that nobody has sent";
      if (!start) return numbers;
      numbers.push_back(start->id);
    }
  }
  Line line;
  Fd outside;
};

struct Outcome {
  bool convinced = false;                             // both
  std::vector<std::uint64_t> by_answerer, by_caller;  // received
};

bool is_beginning_of(const std::vector<std::uint64_t>& numbers, std::uint64_t first) {
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != first + i) return false;
  return numbers.size() <= kMessages;
}

Outcome converse(const Secret& secret, Wire& there, Wire& back) {
  Introduction who{Purpose::data, "job", 3, 5, 7, 2};
  auto caller = Handshake::call(secret, who);
  auto answerer = Handshake::answer(secret, "job");
  Outcome outcome;
  bool good = answerer.feed(there.pass(caller.take_output())).ok();
  good = good && caller.feed(back.pass(answerer.take_output())).ok() && caller.done();
  good = good && answerer.feed(there.pass(caller.take_output())).ok() && answerer.done();
  if (!good) return outcome;
  outcome.convinced = true;
  EXPECT_EQ(answerer.introduction(), who);
  End near(caller.take_keys()), far(answerer.take_keys());
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    EXPECT_TRUE(near.line.try_send(wire::Start{100 + i}).ok());
    EXPECT_TRUE(far.line.try_send(wire::Start{200 + i}).ok());
  }
  far.hears(there.pass(near.said()));
  near.hears(back.pass(far.said()));
  outcome.by_answerer = far.received();
  outcome.by_caller = near.received();
  return outcome;
}

TEST(Tampering, WhatIsChangedOnTheWayIsNeverBelieved) {
  const char* wanted = std::getenv("PLIANT_MUTATIONS");
  const auto mutations = wanted ? std::strtoul(wanted, nullptr, 10) : 3000;
  auto secret = Secret::random();
  Wire there(Change::none, 0, 0, {}), back(Change::none, 0, 0, {});
  auto honest = converse(secret, there, back);
  ASSERT_EQ(honest.by_answerer.size(), kMessages);
  ASSERT_EQ(honest.by_caller.size(), kMessages);
  Random random(1);
  std::size_t altered = 0, unconvinced = 0, lost = 0;
  for (std::size_t i = 0; i < mutations; ++i) {
    auto change = static_cast<Change>(1 + random() % 6);
    bool forth = random() % 2;
    const auto& length = (forth ? there : back).passed().size();
    auto at = random() % length, size = 1 + random() % (i % 2 ? 8 : 300);
    Wire changed(change, at, size, (forth ? there : back).passed()), other(Change::none, 0, 0, {});
    auto outcome = forth ? converse(secret, changed, other) : converse(secret, other, changed);
    ASSERT_TRUE(is_beginning_of(outcome.by_answerer, 100)) << i;
    ASSERT_TRUE(is_beginning_of(outcome.by_caller, 200)) << i;
    if (!changed.altered()) continue;  // two pieces that were the same, for example
    ++altered;
    const auto& heard = forth ? outcome.by_answerer : outcome.by_caller;
    bool missed = heard.size() == kMessages && change != Change::repeat;  // what is repeated comes behind what is good
    ASSERT_FALSE(outcome.convinced && missed) << "mutation " << i << " was not noticed";
    ++(outcome.convinced ? lost : unconvinced);
  }
  EXPECT_GT(altered, mutations * 9 / 10);
  EXPECT_GT(unconvinced, 0U);
  EXPECT_GT(lost, 0U);
  std::printf("%zu changes: %zu ended the handshake, %zu the connection after it\n", altered, unconvinced, lost);
}

}  // namespace
}  // namespace pliant::net
