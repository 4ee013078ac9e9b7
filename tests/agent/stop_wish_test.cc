#include "agent/stop_wish.h"

#include <gtest/gtest.h>

namespace pliant::agent {
namespace {

using wire::Stopping;

TEST(StopWish, NobodyIsToldWhatNobodyAskedFor) {
  StopWish stop;
  stop.tell_again();
  EXPECT_FALSE(stop.untold());
}

TEST(StopWish, IsToldOnceAndAgainIfMoreIsAskedFor) {
  StopWish stop;
  stop.ask(Stopping::in_order);
  ASSERT_TRUE(stop.untold());
  EXPECT_EQ(stop.untold()->force, 0);
  stop.told();
  EXPECT_FALSE(stop.untold());
  stop.ask(Stopping::at_once);
  ASSERT_TRUE(stop.untold());
  EXPECT_EQ(stop.untold()->force, 1);
  stop.told();
  stop.ask(Stopping::in_order);
  EXPECT_FALSE(stop.untold()) << "it is in a hurry already";
}

TEST(StopWish, KeepsItsForceForTheNextCoordinator) {
  StopWish stop;
  stop.ask(Stopping::in_order);
  stop.ask(Stopping::at_once);
  stop.told();
  stop.tell_again();
  ASSERT_TRUE(stop.untold());
  EXPECT_EQ(stop.untold()->force, 1);
}

}  // namespace
}  // namespace pliant::agent
