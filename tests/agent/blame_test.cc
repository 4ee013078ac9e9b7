#include "agent/blame.h"

#include <gtest/gtest.h>

namespace pliant::agent {
namespace {

Death death(std::uint64_t id, int turn) { return {id, {1, 0}, turn, {}}; }

int blamed(const std::vector<Death>& deaths) {
  auto first = first_to_blame(deaths);
  return first ? static_cast<int>(first->id) : -1;
}

TEST(Blame, NobodyDied) { EXPECT_EQ(blamed({}), -1); }

TEST(Blame, TheEarliestThenTheLowest) {
  EXPECT_EQ(blamed({death(3, 1), death(0, 2)}), 3);
  EXPECT_EQ(blamed({death(3, 1), death(1, 1)}), 1);
}

TEST(Ending, InWords) {
  EXPECT_EQ((Ending{3, 0}.words()), "exit code 3");
  EXPECT_EQ((Ending{0, 9}.words()), "killed by signal 9 (Killed)");
  EXPECT_EQ((Ending{0, 9}.exit_status()), 137);
  EXPECT_TRUE((Ending{0, 0}.good()));
  EXPECT_FALSE((Ending{0, 0, true}.good())) << "of other people's children nothing is known";
  EXPECT_EQ((Ending{0, 0, true}.exit_status()), 1);
}

}  // namespace
}  // namespace pliant::agent
