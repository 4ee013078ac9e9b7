// State that is copied to those who have none.
#include "session/replicas.h"

#include <gtest/gtest.h>

#include <numeric>
#include <span>

#include "collective/hosts.h"
#include "collective/team.h"

namespace pliant::session {
namespace {

using collective::Group;

/// Items of odd sizes, several of which lie across the pieces that it is copied in.
struct Model {
  std::vector<float> first, second, third;
  Replicas replicas;

  explicit Model(std::size_t floats, float from) : first(3), second(floats), third(floats / 3 + 1) {
    for (auto* values : {&first, &second, &third}) std::iota(values->begin(), values->end(), from);
    replicas.add("first", state_of(std::span(first)));
    replicas.add("second", state_of(std::span(second)));
    replicas.add("third", state_of(std::span(third)));
  }
};

/// All but the givers begin with something else, and have what the givers have in the end.
void copy(Group& group, std::size_t floats, const std::vector<int>& givers) {
  bool gives = std::ranges::find(givers, group.rank()) != givers.end();
  Model model(floats, gives ? 7.0F : static_cast<float>(group.rank()) / 8);
  ASSERT_TRUE(model.replicas.copy_from(group, givers, !gives).ok());
  Model wanted(floats, 7.0F);
  EXPECT_EQ(model.first, wanted.first);
  EXPECT_TRUE(model.second == wanted.second) << "on rank " << group.rank();
  EXPECT_TRUE(model.third == wanted.third) << "on rank " << group.rank();
  EXPECT_EQ(model.replicas.digest(), wanted.replicas.digest());
}

TEST(Replicas, AreCopiedByteForByteByAllWhoHaveThem) {
  for (std::size_t floats : {1UL, 1000UL, 5'000'003UL})
    for (const auto& givers : {std::vector<int>{0}, {1}, {0, 2}, {0, 1, 3}})
      collective::run_threads(4, [&](Group& group) { copy(group, floats, givers); });
}

TEST(Replicas, BetweenHostsTheFirstGivesAll) {
  collective::run_hosts({0, 0, 1}, [](Group& group) { copy(group, 2'000'003, {0, 1}); });
}

/// What a giver does up to the second round, without what it lays out; then it leaves.
void give_up_midway(Group& group) {
  auto region = group.create_region("~state", 8 << 20).or_throw();
  group.wait(group.submit({.name = "~state", .dtype = Dtype::u8, .count = 1, .region = region}).or_throw()).or_throw();
  group.exchange("").or_throw();
}

TEST(Replicas, AGiverThatIsLostMidwayIsAnErrorForAll) {
  collective::run_threads(3, [](Group& group) {
    group.exchange("").or_throw();  // all are in the view
    if (group.rank() == 1) return give_up_midway(group);
    Model model(5'000'003, 7.0F);
    auto copied = model.replicas.copy_from(group, {0, 1}, group.rank() == 2);
    ASSERT_FALSE(copied.ok());
    EXPECT_EQ(copied.error().code, Code::peer_lost) << copied.error().message;
  });
}

}  // namespace
}  // namespace pliant::session
