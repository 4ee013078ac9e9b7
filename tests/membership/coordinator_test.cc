#include "membership/coordinator.h"

#include <gtest/gtest.h>

namespace pliant::membership {
namespace {

wire::Join join_of(std::uint64_t id) {
  return {"job", id, static_cast<int>(100 + id), "@w" + std::to_string(id), 2, "0.1"};
}

std::string refusal_in(const std::vector<Outgoing>& out) {
  if (out.size() != 1 || !std::holds_alternative<wire::Refusal>(out[0].message)) return "";
  return std::get<wire::Refusal>(out[0].message).reason;
}

TEST(Coordinator, GivesEverybodyOneViewOnceAllAreThere) {
  Coordinator coordinator({"job", 3, 42});
  EXPECT_TRUE(coordinator.on_join(12, join_of(2)).empty());
  EXPECT_TRUE(coordinator.on_join(10, join_of(0)).empty());
  EXPECT_EQ(coordinator.missing(), (std::vector<std::uint64_t>{1}));
  EXPECT_FALSE(coordinator.running());
  auto out = coordinator.on_join(11, join_of(1));
  ASSERT_EQ(out.size(), 3U);
  EXPECT_TRUE(coordinator.running());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(out[rank].to, 10 + rank);
    auto view = view_from(std::get<wire::ViewNotice>(out[rank].message)).or_throw();
    EXPECT_EQ(view.hash(), coordinator.view().hash());
    EXPECT_EQ(view.members[rank].address, "@w" + std::to_string(rank));
    EXPECT_EQ(view.seed, 42U);
  }
}

TEST(Coordinator, RefusesWhoDoesNotFitAndSaysWhy) {
  Coordinator coordinator({"job", 2, 0});
  auto other = join_of(0);
  other.job = "another";
  EXPECT_NE(refusal_in(coordinator.on_join(1, other)).find("'another'"), std::string::npos);
  EXPECT_NE(refusal_in(coordinator.on_join(1, join_of(2))).find("not expected"), std::string::npos);
  EXPECT_TRUE(coordinator.on_join(1, join_of(0)).empty());
  EXPECT_NE(refusal_in(coordinator.on_join(2, join_of(0))).find("already"), std::string::npos);
  auto built = join_of(1);
  built.build = "0.2";
  EXPECT_NE(refusal_in(coordinator.on_join(2, built)).find("0.2"), std::string::npos);
  auto level = join_of(1);
  level.cpu_level = 1;
  EXPECT_NE(refusal_in(coordinator.on_join(2, level)).find("CPU level"), std::string::npos);
  EXPECT_EQ(coordinator.on_join(2, join_of(1)).size(), 2U);
  EXPECT_NE(refusal_in(coordinator.on_join(3, join_of(1))), "");  // too late
}

TEST(Coordinator, AWorkerThatIsCutOffMayComeAgain) {
  Coordinator coordinator({"job", 2, 0});
  (void)coordinator.on_join(1, join_of(0));
  coordinator.on_closed(1);
  EXPECT_EQ(coordinator.missing().size(), 2U);
  EXPECT_TRUE(coordinator.on_join(5, join_of(0)).empty());
  auto out = coordinator.on_join(6, join_of(1));
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].to, 5U);
  coordinator.on_closed(5);  // once the job runs, the line no longer matters
  EXPECT_TRUE(coordinator.running());
  EXPECT_TRUE(coordinator.missing().empty());
}

}  // namespace
}  // namespace pliant::membership
