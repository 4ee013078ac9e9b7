#include <gtest/gtest.h>

#include "agent/verdict.h"

namespace pliant::agent {
namespace {

TEST(VerdictStatus, OfAJobThatWasInterruptedIsTheSignals) {
  Verdict verdict;
  verdict.interrupt(SIGINT);
  EXPECT_TRUE(verdict.open());
  verdict.stop();
  EXPECT_EQ(verdict.outcome(), Outcome::stopped);
  EXPECT_EQ(verdict.exit_status(), 128 + SIGINT);
}

TEST(VerdictStatus, OfAJobWhoseWorkersWereToldToLeaveIsTheirs) {
  Verdict verdict;
  verdict.stop();
  EXPECT_EQ(verdict.exit_status(), 128 + SIGTERM);
}

TEST(VerdictStatus, WorkThatWasDoneIsFinished) {
  Verdict verdict;
  verdict.interrupt(SIGTERM);
  verdict.finish();
  EXPECT_EQ(verdict.outcome(), Outcome::finished);
  EXPECT_EQ(verdict.exit_status(), 0);
}

TEST(VerdictStatus, TheWorstOfAllIsBlamed) {
  Verdict verdict;
  verdict.blame(3);
  verdict.blame(1);
  verdict.hear(Outcome::stopped);
  EXPECT_EQ(verdict.exit_status(), 3);
  EXPECT_EQ(verdict.outcome(), Outcome::stopped);
}

}  // namespace
}  // namespace pliant::agent
