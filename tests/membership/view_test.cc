#include "membership/view.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace pliant::membership {
namespace {

View sample() { return {1, 2, 3, 1, {{10, 100, "@a"}, {11, 101, "@b"}}}; }

TEST(View, TheHashCoversEverything) {
  std::vector<std::function<void(View&)>> changes{
      [](View& v) { v.term = 9; },
      [](View& v) { v.epoch = 9; },
      [](View& v) { v.seed = 9; },
      [](View& v) { v.planned = 9; },
      [](View& v) { v.members[0].id = 9; },
      [](View& v) { v.members[1].pid = 9; },
      [](View& v) { v.members[0].address = "@z"; },
      [](View& v) { std::swap(v.members[0], v.members[1]); },
      [](View& v) { v.members.pop_back(); },
  };
  std::set<std::uint64_t> hashes{sample().hash()};
  for (const auto& change : changes) {
    auto view = sample();
    change(view);
    hashes.insert(view.hash());
  }
  EXPECT_EQ(hashes.size(), changes.size() + 1);
}

TEST(View, RanksFollowTheOrderOfMembers) {
  EXPECT_EQ(sample().rank_of(11), 1);
  EXPECT_EQ(sample().rank_of(12), -1);
}

TEST(View, NonsenseIsRefused) {
  EXPECT_EQ(view_from(notice_of(sample())).or_throw().hash(), sample().hash());
  auto twice = notice_of(sample());
  twice.members[1].id = 10;
  EXPECT_FALSE(view_from(twice).ok());
  auto nobody = notice_of(sample());
  nobody.members.clear();
  EXPECT_FALSE(view_from(nobody).ok());
  auto no_epoch = notice_of(sample());
  no_epoch.epoch = 0;
  EXPECT_FALSE(view_from(no_epoch).ok());
}

}  // namespace
}  // namespace pliant::membership
