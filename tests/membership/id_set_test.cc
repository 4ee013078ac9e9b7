#include "membership/id_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "membership/former.h"

namespace pliant::membership {
namespace {

TEST(IdSet, HoldsThoseThatWereAdded) {
  IdSet set;
  EXPECT_FALSE(set.contains(0));
  for (std::uint64_t id : {5, 3, 4, 0}) set.add(id);
  for (std::uint64_t id : {0, 3, 4, 5}) EXPECT_TRUE(set.contains(id)) << id;
  for (std::uint64_t id : {1, 2, 6}) EXPECT_FALSE(set.contains(id)) << id;
  EXPECT_EQ(set.ranges(), 2U);
}

TEST(IdSet, ManyTakeNoMoreRoomThanFew) {
  std::vector<std::uint64_t> ids(1000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  std::shuffle(ids.begin(), ids.end(), std::mt19937(7));
  IdSet set;
  for (auto id : ids) set.add(id);
  set.add(500);
  EXPECT_EQ(set.ranges(), 1U);
  EXPECT_TRUE(set.contains(999));
  EXPECT_FALSE(set.contains(1000));
}

TEST(Former, TheNewestViewsOfAllOfThemAreKnown) {
  Former former;
  former.add(1, {.last_view = 7, .trained_in = 3});
  former.add(2, {.last_view = 5, .trained_in = 6});
  EXPECT_TRUE(former.contains(1));
  EXPECT_FALSE(former.contains(3));
  EXPECT_EQ(former.last_view(), 7U);
  EXPECT_EQ(former.trained_in(), 6U);
}

}  // namespace
}  // namespace pliant::membership
