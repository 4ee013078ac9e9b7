// `pliant plan`, from the records of a real job.
#include <fstream>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

class Planning : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    auto job = run_workers({"-n", "2", "--record", path("records")}, {"samples=500", "train=40"});
    ASSERT_EQ(job.status, 0) << job.err;
  }
  Outcome plan(const Words& flags) {
    Words all = {"plan", path("records")};
    all.insert(all.end(), flags.begin(), flags.end());
    return run(all);
  }
  std::string trace(const std::string& text) {
    std::ofstream(path("spot.csv")) << text;
    return path("spot.csv");
  }
  std::string objection(const Words& flags) {
    auto seen = plan(flags);
    EXPECT_EQ(seen.status, 2) << seen.out;
    EXPECT_EQ(lines_in(seen.err), 1U) << seen.err;
    return seen.err;
  }
};

TEST_F(Planning, SizesAndPoliciesAreCompared) {
  auto seen = plan({"--sizes", "1,2", "--price", "3600", "--policy", "autoscale:max=2", "--svg", path("pareto.svg")});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.out, "from 40 steps at 2 workers; 400 samples, ");
  EXPECT_SAYS(seen.out, "autoscale:max=2");
  EXPECT_SAYS(seen.out, "* nothing here is both faster and cheaper\n");
  EXPECT_EQ(seen.err, "") << "nobody is looking";
  EXPECT_SAYS(read_all(path("pareto.svg")), "<svg ");
}

TEST_F(Planning, ATraceThatEndsTheJobIsSaid) {
  auto seen = plan({"--sizes", "1", "--samples", "1000000", "--trace", trace("0,1,1\n1,0,1\n")});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.out, "never done: the trace has no capacity for it any more\n");
}

TEST_F(Planning, WhatMakesNoSenseIsOneLine) {
  EXPECT_SAYS(objection({"--trace", trace("0,2,1\n5,3,1\n2,4,1\n")}), "spot.csv:3: times must ascend");
  EXPECT_SAYS(objection({"--trace", trace("0,2\n")}), "spot.csv:1: '0,2' is not seconds,capacity,price");
  EXPECT_SAYS(objection({"--trace", trace("0,2,-1\n")}), "a price cannot be less than nothing");
  EXPECT_SAYS(objection({"--trace", path("nowhere.csv")}), "nowhere.csv");
  EXPECT_SAYS(objection({"--price", "-1"}), "--price");
  EXPECT_SAYS(objection({"--policy", "psychic"}), "psychic");
  EXPECT_SAYS(objection({"--svg", path("nowhere/pareto.svg")}), "nowhere/pareto.svg: cannot be written");
  auto nothing = run({"plan", path("nowhere")});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_SAYS(nothing.err, "nowhere");
}

}  // namespace
}  // namespace pliant::cli_test
