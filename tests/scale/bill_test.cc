#include "scale/bill.h"

#include <gtest/gtest.h>

namespace pliant::scale {
namespace {

TEST(Bill, CountsWhatEachClassDoes) {
  Bill bill;
  bill.set_crew(10, "", {2, 0, 0});
  bill.set_crew(12, "", {0, 2, 0});
  bill.set_crew(20, "", {1, 2, 0});
  bill.set_crew(21, "", {0, 2, 1});
  auto total = bill.total(25);
  EXPECT_DOUBLE_EQ(total.seconds[0], 2 * 2 + 1);
  EXPECT_DOUBLE_EQ(total.seconds[1], 2 * 13);
  EXPECT_DOUBLE_EQ(total.seconds[2], 4);
  EXPECT_DOUBLE_EQ(bill.total(25).worker_seconds(), 35) << "asking changes nothing";
  EXPECT_EQ(bill.text(25), "35.0 worker-seconds of work (74 % training, 14 % starting, 11 % waiting)");
}

TEST(Bill, PricesHoldFromWhenTheyAreSet) {
  Bill bill;
  bill.set_price(0, "spot", 3.6);
  bill.set_price(0, "firm", 36);
  bill.set_crew(0, "spot", {0, 2, 0});
  bill.set_crew(0, "firm", {0, 1, 0});
  bill.set_price(100, "spot", 7.2);
  auto lines = bill.lines(200);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].kind, "firm");
  EXPECT_NEAR(lines[0].money, 2, 1e-12);
  EXPECT_NEAR(lines[1].money, 2 * (0.1 + 0.2), 1e-12);
  EXPECT_NE(bill.text(200).find("; firm: 3.3 worker-minutes, 2; spot: 6.7 worker-minutes, 0.6"), std::string::npos)
      << bill.text(200);
}

TEST(Bill, WhoIsNotNamedHasGone) {
  Bill bill;
  bill.set_crew(0, "a", {0, 1, 0});
  bill.set_crew(0, "b", {0, 1, 0});
  bill.only(10, {"a"});
  EXPECT_DOUBLE_EQ(bill.lines(20)[0].worker_seconds(), 20);
  EXPECT_DOUBLE_EQ(bill.lines(20)[1].worker_seconds(), 10);
}

TEST(Bill, IsCarriedOver) {
  Bill before, after;
  before.set_price(0, "", 36);
  before.set_crew(0, "", {0, 4, 0});
  after.set_price(0, "", 36);
  after.carry_over(before.lines(100));
  after.set_crew(7, "", {0, 1, 0});
  EXPECT_DOUBLE_EQ(after.total(17).worker_seconds(), 410);
  EXPECT_NEAR(after.total(17).money, 4.1, 1e-12);
}

TEST(Bill, AClockThatGoesBackCostsNothing) {
  Bill bill;
  bill.set_crew(10, "", {0, 1, 0});
  bill.set_crew(5, "", {0, 1, 0});
  EXPECT_DOUBLE_EQ(bill.total(11).worker_seconds(), 1);
}

TEST(Bill, SaysWhatFixedSizesWouldHaveCost) {
  Throughputs seen;
  seen.add(1, 100);
  seen.add(4, 300);
  BillLine paid;
  paid.seconds[1] = 200;
  paid.money = 2;
  auto sizes = fixed_sizes(seen, 6000, paid, true);
  ASSERT_EQ(sizes.size(), 2U);
  EXPECT_DOUBLE_EQ(sizes[0].seconds, 60);
  EXPECT_DOUBLE_EQ(*sizes[0].money, 0.6);
  EXPECT_DOUBLE_EQ(sizes[1].seconds, 20);
  EXPECT_DOUBLE_EQ(sizes[1].worker_seconds, 80);
  EXPECT_FALSE(fixed_sizes(seen, 6000, paid, false)[0].money.has_value());
}

}  // namespace
}  // namespace pliant::scale
