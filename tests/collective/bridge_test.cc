#include "collective/bridge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "collective/lone_bridge.h"

namespace pliant::collective {
namespace {

constexpr std::size_t kBytes = 1 << 20;

/// What it is refused for; empty if it is taken.
std::string refusal(const Status& status) {
  EXPECT_TRUE(status.ok() || status.error().code == Code::protocol);
  return status.ok() ? "" : status.error().message;
}

testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' does not say '" << part << "'";
}

/// A partial of rank 1 that is as it should be: for the first leg that rank 0 finalises.
struct HonestPartial {
  explicit HonestPartial(const LoneBridge& lone, const CrossingPlan& plan, std::uint64_t chunk = 0)
      : header(LoneBridge::frame_of(kPartial)) {
    for (const auto& at : plan.legs_of(0, chunk))
      if (final_host(at.stripe, lone.topology()) == 0) legs.push_back(at);
    if (legs.empty()) return;
    header.value = chunk;
    header.index = legs[0].number;
    header.slot = 1;
    header.number = 1;
    bytes.resize(legs[0].piece.size());
  }
  std::vector<LegPlace> legs;
  FrameHeader header;
  std::vector<std::byte> bytes;
};

TEST(Bridge, APartialIsTakenIfItIsWhatThePlanSays) {
  LoneBridge lone;
  HonestPartial partial(lone, lone.describe("w", kBytes));
  EXPECT_EQ(refusal(lone.send(1, partial.header, partial.bytes)), "");
  partial.header.slot = 0;  // nobody of that host contributes
  partial.header.number = 0;
  partial.header.index = partial.legs.at(1).number;
  EXPECT_EQ(refusal(lone.send(1, partial.header)), "");
  EXPECT_EQ(lone.bridge().crossings(), 1U);
}

TEST(Bridge, APartialThatIsAnythingElseBreaksARule) {
  using Change = std::function<void(HonestPartial&)>;
  std::vector<std::pair<const char*, Change>> changes{
      {"described 1", [](auto& partial) { partial.header.use = 1; }},
      {"described 1", [](auto& partial) { partial.header.use = UINT64_MAX; }},
      {"chunk 1", [](auto& partial) { partial.header.value = 1; }},
      {"chunk 18446744073709551615", [](auto& partial) { partial.header.value = UINT64_MAX; }},
      {"does not carry", [](auto& partial) { partial.header.index += 1; }},
      {"does not carry", [](auto& partial) { partial.header.index = UINT32_MAX; }},
      {"at most 1", [](auto& partial) { partial.header.slot = 2; }},
      {"262144 bytes by 0 ranks", [](auto& partial) { partial.header.slot = 0; }},
      {"0 bytes by 1 ranks", [](auto& partial) { partial.bytes.clear(); }},
      {"4 bytes", [](auto& partial) { partial.bytes.resize(4); }},
      {"weight nan", [](auto& partial) { partial.header.number = std::nan(""); }},
      {"weight inf", [](auto& partial) { partial.header.number = std::numeric_limits<double>::infinity(); }},
      {"weight -1", [](auto& partial) { partial.header.number = -1; }},
      {"weight 0", [](auto& partial) { partial.header.number = 0; }},
  };
  for (const auto& [says, change] : changes) {
    LoneBridge lone;
    HonestPartial partial(lone, lone.describe("w", kBytes * 2));
    change(partial);
    EXPECT_TRUE(contains(refusal(lone.send(1, partial.header, partial.bytes)), says));
    EXPECT_EQ(lone.bridge().crossings(), 0U) << says;
  }
}

TEST(Bridge, APartialComesFromTheRankThatCarriesItToTheOneThatFinalisesIt) {
  LoneBridge lone;
  auto plan = lone.describe("w", kBytes);
  HonestPartial partial(lone, plan);
  auto right = carrier(partial.legs[0].stripe, 2, lone.topology());
  EXPECT_TRUE(contains(refusal(lone.send(right == 2 ? 3 : 2, partial.header, partial.bytes)), "does not carry"));
  EXPECT_EQ(refusal(lone.send(right, partial.header, partial.bytes)), "");
  for (const auto& at : plan.legs_of(0, 0)) {
    if (final_host(at.stripe, lone.topology()) == 0) continue;
    partial.header.index = at.number;
    partial.bytes.resize(at.piece.size());
    EXPECT_FALSE(lone.send(1, partial.header, partial.bytes).ok());
  }
}

TEST(Bridge, APartialIsTakenOnceAndKeepsItsMemoryWhileItIsReceived) {
  LoneBridge lone;
  HonestPartial partial(lone, lone.describe("w", kBytes));
  partial.header.bytes = static_cast<std::uint32_t>(partial.bytes.size());
  auto place = lone.begin(1, partial.header);
  ASSERT_TRUE(place.ok());
  std::memset(place.value(), 1, partial.bytes.size());
  EXPECT_TRUE(contains(refusal(lone.send(1, partial.header, partial.bytes)), "a second partial"));
  std::memset(place.value(), 2, partial.bytes.size());  // a sanitizer sees it if that is nobody's memory any more
  EXPECT_EQ(refusal(lone.bridge().on_frame(LoneBridge::kId + 1, partial.header, place.value())), "");
  EXPECT_TRUE(contains(refusal(lone.send(1, partial.header, partial.bytes)), "a second partial"));
}

TEST(Bridge, PeersAreAheadByAsManyChunksAsTheRingHasSlots) {
  LoneBridge lone;
  auto plan = lone.describe("plain", std::size_t{16} << 20, Memory::plain);
  ASSERT_EQ(plan.ahead(), 16U);
  std::size_t taken = 0;
  for (std::uint64_t chunk = 0; chunk < 40; ++chunk) {
    HonestPartial partial(lone, plan, chunk);
    if (partial.legs.empty()) continue;  // other hosts finalise it
    auto said = refusal(lone.send(1, partial.header, partial.bytes));
    if (chunk < 16)
      EXPECT_EQ(said, "");
    else
      EXPECT_TRUE(contains(said, "16 may be on their way"));
    taken += chunk < 16;
  }
  EXPECT_GT(taken, 3U);
  EXPECT_EQ(lone.bridge().crossings(), taken);
  lone.own().channel[0].reduced = 3;
  HonestPartial late(lone, plan, 1), next(lone, plan, 17);
  ASSERT_FALSE(late.legs.empty() || next.legs.empty());
  EXPECT_FALSE(lone.send(1, late.header, late.bytes).ok());
  EXPECT_EQ(refusal(lone.send(1, next.header, next.bytes)), "");
}

TEST(Bridge, OfAChunkThatIsReducedNothingIsBegunAgain) {
  LoneBridge lone;
  HonestPartial partial(lone, lone.describe("w", kBytes));
  EXPECT_EQ(refusal(lone.send(1, partial.header, partial.bytes)), "");
  Crossing over;
  over.key = {0, 0};
  lone.own().channel[0].reduced = 1;
  lone.bridge().close(over);
  EXPECT_FALSE(lone.send(1, partial.header, partial.bytes).ok());
  EXPECT_EQ(lone.bridge().crossings(), 0U);
}

TEST(Bridge, AResultIsReceivedOnceFromTheRankThatMadeItAndNowhereElse) {
  LoneBridge lone;
  auto plan = lone.describe("w", kBytes);
  std::vector<std::byte> given(kBytes), result(kBytes);
  Channel theirs[1] = {};
  LoneBridge::fill(theirs[0], "w", kBytes, Memory::registered);
  std::vector<const Channel*> peers{&lone.own().channel[0]};
  for (int rank = 1; rank < 4; ++rank) {
    ASSERT_EQ(refusal(lone.announce(rank, 0, theirs[0])), "");
    peers.push_back(&lone.bridge().mirror(rank)->channel[0]);
  }
  auto final = LoneBridge::frame_of(kFinal);
  std::optional<LegPlace> leg;
  for (const auto& at : plan.legs_of(0, 0))
    if (final_host(at.stripe, lone.topology()) == 1) leg = at;
  ASSERT_TRUE(leg);
  final.index = leg->number;
  std::vector<std::byte> bytes(leg->piece.size(), std::byte{9});
  EXPECT_TRUE(contains(refusal(lone.send(1, final, bytes)), "nobody has begun"));
  lone.bridge().open({0, 0}, peers, {given.data(), result.data(), nullptr, 1, 1});
  EXPECT_TRUE(contains(refusal(lone.send(carrier(leg->stripe, 2, lone.topology()), final, bytes)), "not awaited"));
  EXPECT_TRUE(contains(refusal(lone.send(1, final, std::span(bytes).first(100))), "100 bytes"));
  EXPECT_TRUE(contains(refusal(lone.send(1, final)), "0 bytes"));
  EXPECT_EQ(std::ranges::count(result, std::byte{9}), 0);
  final.bytes = static_cast<std::uint32_t>(bytes.size());
  auto place = lone.begin(1, final);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place.value(), result.data() + leg->piece.begin);
  EXPECT_TRUE(contains(refusal(lone.send(1, final, bytes)), "not awaited"));
  EXPECT_EQ(refusal(lone.bridge().on_frame(LoneBridge::kId + 1, final, place.value())), "");
  EXPECT_TRUE(contains(refusal(lone.send(1, final, bytes)), "not awaited"));
  EXPECT_EQ(std::ranges::count(result, std::byte{9}), 0);
}

TEST(Bridge, FramesOfOthersAndOfKindsThatDoNotExistBreakARule) {
  LoneBridge lone;
  EXPECT_TRUE(contains(refusal(lone.send(7, LoneBridge::frame_of(kProgress))), "a view that it is not in"));
  EXPECT_TRUE(contains(refusal(lone.send(0, LoneBridge::frame_of(kProgress))), "a view that it is not in"));
  EXPECT_TRUE(contains(refusal(lone.send(1, LoneBridge::frame_of(static_cast<FrameKind>(9)))), "kind 9"));
  std::vector<std::byte> much(kMostWords + 1);
  EXPECT_TRUE(contains(refusal(lone.send(1, LoneBridge::frame_of(kRow), much)), "more than 4032"));
  EXPECT_EQ(lone.nudges(), 0);
}

TEST(Bridge, AfterTheViewsEndWhatDoesNotFitIsDroppedWithoutAWord) {
  LoneBridge lone;
  HonestPartial partial(lone, lone.describe("w", kBytes));
  lone.end_view();
  EXPECT_EQ(refusal(lone.send(1, partial.header, partial.bytes)), "");
  partial.header.use = 4;
  EXPECT_EQ(refusal(lone.send(1, partial.header, partial.bytes)), "");
  Channel channel{};
  LoneBridge::fill(channel, "x", 4, Memory::plain);
  EXPECT_EQ(refusal(lone.announce(1, 5, channel)), "");
  EXPECT_EQ(lone.bridge().mirror(1)->channels, 0U);
  EXPECT_EQ(lone.bridge().crossings(), 0U);
}

// ---- words ----

FrameHeader progress_of(Counter counter, std::uint64_t value, std::uint64_t use, std::uint32_t index = 0) {
  auto frame = LoneBridge::frame_of(kProgress);
  frame.index = index;
  frame.slot = static_cast<std::uint16_t>(static_cast<int>(counter) * 2 + static_cast<int>(use % 2));
  frame.value = value;
  frame.number = 2;
  return frame;
}

TEST(Mirror, DescriptionsComeInOrderAndMakeSense) {
  using Change = std::function<void(Channel&)>;
  std::vector<Change> changes{
      [](Channel& channel) { channel.name_length = 0; },
      [](Channel& channel) { channel.name_length = 121; },
      [](Channel& channel) { channel.region_length = 255; },
      [](Channel& channel) { channel.shape.dtype = static_cast<Dtype>(8); },
      [](Channel& channel) { channel.shape.op = static_cast<Op>(200); },
      [](Channel& channel) { channel.shape.memory = static_cast<Memory>(2); },
      [](Channel& channel) { channel.shape.count = 0; },
      [](Channel& channel) { channel.shape.count = UINT64_MAX; },
      [](Channel& channel) { channel.shape.count = kBytes; },
      [](Channel& channel) { channel.shape.offset = 2; },
      [](Channel& channel) { channel.shape.offset = UINT64_MAX - 3; },
      [](Channel& channel) { channel.chunks = 2; },
      [](Channel& channel) { channel.chunks = 0; },
      [](Channel& channel) { channel.first_use = 1; },
      [](Channel& channel) { channel.shape.memory = Memory::plain, channel.shape.offset = 4; },
      [](Channel& channel) { channel.shape.memory = Memory::plain, channel.chunks = 2; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    LoneBridge lone;
    Channel channel{};
    LoneBridge::fill(channel, "w", kBytes, Memory::registered);
    changes[i](channel);
    EXPECT_FALSE(lone.announce(1, 0, channel).ok()) << i;
    EXPECT_EQ(lone.bridge().mirror(1)->channels, 0U) << i;
  }
  LoneBridge lone;
  Channel channel{};
  LoneBridge::fill(channel, "w", kBytes, Memory::registered);
  EXPECT_TRUE(contains(refusal(lone.announce(1, 1, channel)), "number 0"));
  EXPECT_EQ(refusal(lone.announce(1, 0, channel)), "");
  EXPECT_TRUE(contains(refusal(lone.announce(1, 0, channel)), "number 1"));
  EXPECT_TRUE(contains(refusal(lone.announce(1, 1, channel)), "from use 0 on"));
  channel.first_use = 5;
  channel.shape.count = 3;
  EXPECT_EQ(refusal(lone.announce(1, 1, channel)), "");
  EXPECT_TRUE(contains(refusal(lone.announce(1, 2, channel)), "from use 5 on"));
  auto cut = LoneBridge::frame_of(kAnnounce);
  cut.index = 2;
  EXPECT_TRUE(contains(refusal(lone.send(1, cut)), "of 0 bytes"));
}

TEST(Mirror, AListOfChannelsThatIsFullStaysAsItIs) {
  LoneBridge lone;
  Channel channel{};
  for (std::uint32_t i = 0; i < kMaxChannels; ++i) {
    LoneBridge::fill(channel, "n" + std::to_string(i), 4, Memory::plain);
    ASSERT_EQ(refusal(lone.announce(1, i, channel)), "");
  }
  LoneBridge::fill(channel, "more", 4, Memory::plain);
  EXPECT_FALSE(lone.announce(1, kMaxChannels, channel).ok());
  EXPECT_FALSE(lone.announce(1, UINT32_MAX, channel).ok());
  EXPECT_EQ(lone.bridge().mirror(1)->channels, kMaxChannels);
}

TEST(Mirror, CountersGoUpOneByOneAndNoFurtherThanTheyCan) {
  LoneBridge lone;
  Channel channel{};
  LoneBridge::fill(channel, "w", kBytes, Memory::registered);
  EXPECT_TRUE(contains(refusal(lone.send(1, progress_of(Counter::submitted, 1, 0))), "has described 0"));
  ASSERT_EQ(refusal(lone.announce(1, 0, channel)), "");
  EXPECT_TRUE(contains(refusal(lone.send(1, progress_of(Counter::submitted, 1, 0, 1))), "has described 1"));
  EXPECT_TRUE(contains(refusal(lone.send(1, progress_of(Counter::submitted, 1, 0, UINT32_MAX))), "has described 1"));
  EXPECT_FALSE(lone.send(1, progress_of(static_cast<Counter>(3), 1, 0)).ok());
  EXPECT_TRUE(contains(refusal(lone.send(1, progress_of(Counter::submitted, 2, 1))), "from 0 to 2"));
  EXPECT_TRUE(contains(refusal(lone.send(1, progress_of(Counter::submitted, 1, 1))), "another use"));
  EXPECT_EQ(refusal(lone.send(1, progress_of(Counter::submitted, 1, 0))), "");
  EXPECT_TRUE(contains(refusal(lone.send(1, progress_of(Counter::submitted, 1, 0))), "from 1 to 1"));
  EXPECT_TRUE(contains(refusal(lone.send(1, progress_of(Counter::submitted, 0, 1))), "from 1 to 0"));
  // Nobody reduces what this rank has not described, nor is far ahead of it.
  EXPECT_TRUE(contains(refusal(lone.send(1, progress_of(Counter::reduced, 1, 0))), "at most 0"));
  lone.describe("w", kBytes);
  EXPECT_EQ(refusal(lone.send(1, progress_of(Counter::reduced, 1, 0))), "");
  EXPECT_TRUE(contains(refusal(lone.send(1, progress_of(Counter::reduced, 2, 1))), "at most 1"));
  EXPECT_TRUE(contains(refusal(lone.send(1, progress_of(Counter::copied, 2, 1))), "at most 1"));
  EXPECT_EQ(refusal(lone.send(1, progress_of(Counter::copied, 1, 0))), "");
  const auto& seen = lone.bridge().mirror(1)->channel[0];
  EXPECT_EQ(seen.submitted, 1U);
  EXPECT_EQ(seen.reduced, 1U);
  EXPECT_EQ(seen.copied, 1U);
  EXPECT_EQ(seen.weight[0], 2);
  EXPECT_EQ(seen.weight[1], 0);
}

TEST(Mirror, RowsComeOneByOneAndNeverOverOneThatIsRead) {
  LoneBridge lone;
  auto row = LoneBridge::frame_of(kRow);
  auto send = [&](std::uint64_t number, const std::string& text) {
    row.value = number;
    return refusal(lone.send(1, row, std::as_bytes(std::span(text))));
  };
  EXPECT_NE(send(0, "a"), "");
  EXPECT_NE(send(2, "a"), "");
  EXPECT_NE(send(UINT64_MAX, "a"), "");
  EXPECT_EQ(send(1, "first"), "");
  EXPECT_NE(send(1, "again"), "");
  EXPECT_TRUE(contains(send(2, "second"), "at most row 1"));  // this rank has not published its first yet
  lone.own().rows = 1;
  EXPECT_EQ(send(2, ""), "");
  const auto& seen = *lone.bridge().mirror(1);
  EXPECT_EQ(std::string(seen.row[0], seen.row_size[0]), "first");
  EXPECT_EQ(seen.row_size[1], 0U);
  EXPECT_EQ(seen.rows, 2U);
}

TEST(Mirror, WhatARankSaysOfItselfIsBoundedAndItsFirstComplaintStands) {
  LoneBridge lone;
  auto state = LoneBridge::frame_of(kState);
  std::vector<std::byte> complaint(1000, std::byte{'x'});
  state.index = 1;
  EXPECT_TRUE(contains(refusal(lone.send(1, state)), "waits for channel 1"));
  state.index = UINT32_MAX;
  state.use = 2;
  EXPECT_TRUE(contains(refusal(lone.send(1, state)), "confirmed 2 times"));
  state.use = 1;
  EXPECT_EQ(refusal(lone.send(1, state, complaint)), "");
  state.use = 0;  // of another thread, which has read it before
  complaint.assign(10, std::byte{'y'});
  EXPECT_EQ(refusal(lone.send(1, state, complaint)), "");
  complaint.assign(1001, std::byte{'z'});
  EXPECT_TRUE(contains(refusal(lone.send(1, state, complaint)), "1001 bytes"));
  const auto& seen = *lone.bridge().mirror(1);
  EXPECT_EQ(seen.confirmed, 1U);
  EXPECT_EQ(std::string(seen.complaint, seen.complaint_length), std::string(1000, 'x'));
}

}  // namespace
}  // namespace pliant::collective
