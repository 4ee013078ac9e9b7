// Policies that `pliant run` is told of, in real jobs.
#include <fmt/format.h>
#include <signal.h>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

class Policies : public CliTest {
 protected:
  void TearDown() override {
    EXPECT_TRUE(nothing_left());
    CliTest::TearDown();
  }
  Command start_training(const Words& policies) {
    Words flags = {"--name", "night", "-n", "2", "--max", "4"};
    for (const auto& policy : policies) flags.insert(flags.end(), {"--policy", policy});
    return start_workers(flags, endless());
  }
  static std::string scripted(const std::string& script) { return PLIANT_CLI_POLICY ":" + script; }
};

TEST_F(Policies, AScheduleMakesAJobGrowAndShrink) {
  auto job = start_training({"schedule:2x20,3x60,2x1000000"});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();  // the newcomer knew what had been said
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(seen.err.find("not asked any more"), std::string::npos) << seen.err;
}

TEST_F(Policies, ASharedObjectIsAskedToo) {
  auto job = start_training({scripted("workers=3@20"), "critical-batch"});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  EXPECT_EQ(finish(job).status, 0);
}

TEST_F(Policies, OneThatThrowsLoopsOrDiffersIsNamedInOneLineAndTheJobGoesOn) {
  for (auto [script, reason] : {std::pair("throws@10", "rank 0: out of ideas"),
                                std::pair("loops@10", "rank 0: it did not answer within 2000 ms"),
                                std::pair("differs@10", "it answers differently: ranks differ: ")}) {
    std::remove(path("enough").c_str());
    auto job = start_training({scripted(script)});
    ASSERT_TRUE(step_becomes("night", 40)) << job.err();
    EXPECT_EQ(view_becomes("night", {0, 1}), true);
    auto seen = finish(job);
    EXPECT_EQ(seen.status, 0) << seen.err;
    EXPECT_SAYS(seen.err, reason);
    EXPECT_SAYS(seen.err, "is not asked any more");
  }
}

TEST_F(Policies, AnImpossibleWishIsReported) {
  auto job = start_training({scripted("workers=9@10")});  // --max is 4
  ASSERT_TRUE(step_becomes("night", 40)) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "at most 4 workers (--max)");
}

TEST_F(Policies, MistakesAreFoundBeforeAnythingIsStarted) {
  for (auto [policy, reason] :
       {std::pair("nonsense", "there is no policy 'nonsense'"), std::pair("gns:most=3", "there is no option 'most'"),
        std::pair("./nowhere.so", "--policy ./nowhere.so: no such file")}) {
    auto seen = run({"run", "--policy", policy, "--", "true"});
    EXPECT_NE(seen.status, 0);
    EXPECT_SAYS(seen.err, reason);
  }
}

}  // namespace
}  // namespace pliant::cli_test
