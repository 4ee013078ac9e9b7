#include "collective/crossing_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>

namespace pliant::collective {
namespace {

std::vector<CrossingPlan> plans() {
  auto ring = ring_for(3'000'001, 3);
  auto small = ring_for(100, 5);
  return {
      CrossingPlan::of_registered(stripes_for(1 << 20, 2, 4), 0, 1 << 20),
      CrossingPlan::of_registered(stripes_for(1 << 20, 2, 4), 10'004, 700'000),  // begins and ends within a page
      CrossingPlan::of_registered(stripes_for(100, 1, 2), 40, 8),
      CrossingPlan::of_registered({std::size_t{40} << 20, std::size_t{1} << 20, 3}, 12,
                                  30 << 20),  // stripes of four legs
      CrossingPlan::of_plain(stripes_for(ring.chunk * static_cast<std::size_t>(ring.slots), 2, 4), ring, 3'000'001),
      CrossingPlan::of_plain(stripes_for(small.chunk * static_cast<std::size_t>(small.slots), 3, 6), small, 100),
  };
}

TEST(CrossingPlan, EveryLegIsFoundByItsNumberAndNothingElseIs) {
  for (const auto& plan : plans()) {
    for (std::uint64_t chunk = 0; chunk < 40; ++chunk) {
      std::map<std::uint32_t, LegPlace> legs;
      std::size_t bytes = 0;
      for (int place = 0; place < plan.stripes.ranks; ++place) {
        for (const auto& leg : plan.legs_of(place, chunk)) {
          EXPECT_EQ(plan.stripes.owner(leg.stripe), place);
          EXPECT_TRUE(legs.emplace(leg.number, leg).second) << "two legs with number " << leg.number;
          bytes += leg.piece.size();
        }
      }
      EXPECT_EQ(bytes, plan.part(chunk).size());
      auto pages = static_cast<std::uint32_t>(plan.stripes.bytes / kPage + 300);
      for (std::uint32_t number = 0; number < pages; ++number) {
        auto found = plan.leg_at(chunk, number);
        auto leg = legs.find(number);
        ASSERT_EQ(found.has_value(), leg != legs.end()) << number;
        if (found) {
          ASSERT_EQ(*found, leg->second) << number;
        }
      }
      EXPECT_FALSE(plan.leg_at(chunk, UINT32_MAX));
    }
  }
}

TEST(CrossingPlan, ChunksOfPlainMemoryLieInTheSlotsOfTheRing) {
  auto ring = ring_for(3'000'001, 3);
  ASSERT_EQ(ring.slots, 12);
  ASSERT_EQ(ring.chunks, 12U);
  auto plan = CrossingPlan::of_plain(stripes_for(ring.chunk * 12, 2, 4), ring, 3'000'001);
  EXPECT_EQ(plan.ahead(), 12U);
  EXPECT_EQ(plan.part(1), (Piece{ring.chunk, 2 * ring.chunk}));
  EXPECT_EQ(plan.part(11).size(), 3'000'001 - 11 * ring.chunk);
  EXPECT_EQ(plan.part(23), plan.part(11));
  EXPECT_EQ(CrossingPlan::of_registered(stripes_for(100, 1, 2), 40, 8).ahead(), 1U);
}

TEST(OwnChannels, APeersChannelStandsForTheOneWithTheSameDescription) {
  auto control = std::make_unique<Control>();
  OwnChannels channels;
  for (std::uint32_t i = 0; i < 2; ++i) {
    auto& channel = control->channel[i];
    channel.shape = {.count = 10 + i, .memory = Memory::plain};
    channel.chunks = 1;
    channel.first_use = 3 * i;
    channel.name_length = 1;
    channel.name[0] = 'w';
    channels.add(channel, {});
  }
  EXPECT_EQ(channels.size(), 2U);
  EXPECT_EQ(channels.at(1)->channel, &control->channel[1]);
  EXPECT_EQ(channels.at(2), nullptr);
  EXPECT_EQ(channels.at(UINT64_MAX), nullptr);
  auto theirs = std::make_unique<Control>();
  std::memcpy(static_cast<void*>(&theirs->channel[0]), &control->channel[1], offsetof(Channel, submitted));
  EXPECT_EQ(channels.counterpart(theirs->channel[0]), channels.at(1));
  theirs->channel[0].shape.count = 12;
  EXPECT_EQ(channels.counterpart(theirs->channel[0]), nullptr);
  theirs->channel[0].name[0] = 'v';
  EXPECT_EQ(channels.counterpart(theirs->channel[0]), nullptr);
}

}  // namespace
}  // namespace pliant::collective
