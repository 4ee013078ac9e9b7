#include "apps/pliant/led_host.h"

#include <gtest/gtest.h>

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

TEST(LedHost, PausesGrowUpToALimit) {
  LedHost host({"a", 2}, "/tmp");
  Nanos now = 1s;
  for (auto pause : {1s, 2s, 4s, 8s, 16s, 30s, 30s}) {
    host.failed(now);
    host.try_again_later(now, false);
    EXPECT_FALSE(host.due(now + pause - 1ns));
    EXPECT_TRUE(host.due(now + pause));
  }
}

TEST(LedHost, IsHopelessAfterSeveralShortRuns) {
  LedHost host({"a", 2}, "/tmp");
  EXPECT_EQ(host.failed(1s), 1);
  EXPECT_EQ(host.failed(2s), 2);
  EXPECT_FALSE(host.hopeless());
  EXPECT_EQ(host.failed(3s), 3);
  EXPECT_TRUE(host.hopeless());
  EXPECT_EQ(host.failed(1s + LedHost::kGoodRun), 1) << "that was a good run";
  EXPECT_FALSE(host.hopeless());
}

TEST(LedHost, OneThatIsNotWantedHasNoSlotsAndIsNotTried) {
  LedHost host({"a", 2}, "/tmp");
  EXPECT_EQ(host.slots(), 2U);
  host.failed(1s);
  host.try_again_later(1s, false);
  host.give_up();
  EXPECT_EQ(host.slots(), 0U);
  EXPECT_FALSE(host.due(1h));
  host.want_again();
  EXPECT_EQ(host.slots(), 2U);
  EXPECT_FALSE(host.was_led_to());
  host.call_off();
  EXPECT_FALSE(host.due(1h));
}

}  // namespace
}  // namespace pliant::cli
