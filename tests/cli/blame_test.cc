#include "apps/pliant/blame.h"

#include <gtest/gtest.h>

namespace pliant::cli {
namespace {

Death death(int rank, int turn) { return {rank, {1, 0}, turn, {}}; }

int blamed(const std::vector<Death>& deaths, const std::vector<Accusation>& accusations) {
  auto first = first_to_blame(deaths, accusations);
  return first ? first->rank : -1;
}

TEST(Blame, NobodyDied) { EXPECT_EQ(blamed({}, {{0, 1, ""}}), -1); }

TEST(Blame, WithoutWordsTheEarliestThenTheLowest) {
  EXPECT_EQ(blamed({death(3, 1), death(0, 2)}, {}), 3);
  EXPECT_EQ(blamed({death(3, 1), death(1, 1)}, {}), 1);
}

TEST(Blame, TheAccusedComesFirstEvenIfSeenLater) { EXPECT_EQ(blamed({death(0, 1), death(2, 2)}, {{0, 2, "lost"}}), 2); }

TEST(Blame, AnAccusedThatLivesIsNotBlamed) { EXPECT_EQ(blamed({death(0, 1)}, {{0, 2, "lost"}}), 0); }

TEST(Blame, ChainsOfAccusationsEndAtTheOneThatAccusesNobody) {
  EXPECT_EQ(blamed({death(0, 1), death(1, 1), death(2, 1)}, {{0, 1, "lost"}, {1, 2, "lost"}, {2, 2, "my own fault"}}),
            2);
}

TEST(Blame, WithinATurnTheAccusersAreInnocent) { EXPECT_EQ(blamed({death(0, 1), death(1, 1)}, {{0, 5, "lost"}}), 1); }

TEST(Ending, InWords) {
  EXPECT_EQ((Ending{3, 0}.words()), "exit code 3");
  EXPECT_EQ((Ending{0, 9}.words()), "killed by signal 9 (Killed)");
  EXPECT_EQ((Ending{0, 9}.exit_status()), 137);
  EXPECT_TRUE((Ending{0, 0}.good()));
}

}  // namespace
}  // namespace pliant::cli
