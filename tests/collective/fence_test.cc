#include "collective/fence.h"

#include <gtest/gtest.h>

namespace pliant::collective {
namespace {

TEST(Fence, TheFirstReasonStandsAndNothingIsPublishedAfterIt) {
  Fence fence;
  int published = 0, marked = 0;
  EXPECT_TRUE(fence.publish_unless_up([&] { ++published; }).ok());
  EXPECT_TRUE(fence.raise({Code::peer_lost, "first"}, [&] { ++marked; }));
  EXPECT_FALSE(fence.raise({Code::mismatch, "second"}, [&] { ++marked; }));
  EXPECT_TRUE(fence.up());
  EXPECT_EQ(fence.reason().message, "first");
  auto refused = fence.publish_unless_up([&] { ++published; });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::peer_lost);
  EXPECT_EQ(published, 1);
  EXPECT_EQ(marked, 1);
}

TEST(Departures, NamesTheLowestRankThatHasLeftTooEarly) {
  Departures departures(4);
  auto lacks = [](int rank) { return rank != 1; };
  EXPECT_FALSE(departures.any());
  EXPECT_EQ(departures.first_of(lacks), -1);
  departures.note(1);
  EXPECT_EQ(departures.first_of(lacks), -1) << "it has given all that is needed";
  departures.note(3);
  departures.note(2);
  EXPECT_TRUE(departures.any());
  EXPECT_EQ(departures.first_of(lacks), 2);
}

}  // namespace
}  // namespace pliant::collective
