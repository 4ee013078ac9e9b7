// Jobs that find their own size, with real processes whose compute is sleep.
#include <fmt/format.h>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

class Autoscaled : public CliTest {
 protected:
  void TearDown() override {
    EXPECT_TRUE(nothing_left());
    CliTest::TearDown();
  }
  /// A step takes 20 ms, and much longer with more workers than `knee`.
  Command start_job(const std::string& policy, int from, int knee) {
    return start({"run",
                  "--name",
                  "night",
                  "-n",
                  std::to_string(from),
                  "--max",
                  "5",
                  "--policy",
                  policy,
                  "--",
                  PLIANT_SYNTHETIC,
                  "--parameters",
                  "65536",
                  "--buckets",
                  "1",
                  "--compute-ms",
                  "20",
                  "--sleep",
                  "--knee",
                  std::to_string(knee),
                  "--steps",
                  "1000000"});
  }
  void stop(Command& job) {
    EXPECT_EQ(run({"stop", "night"}).status, 0);
    job.wait();
  }
};

TEST_F(Autoscaled, AJobGrowsToItsKneeAndStays) {
  auto job = start_job("autoscale:max=5", 1, 3);
  ASSERT_TRUE(job.comes_to_say("3 workers it is")) << job.err();
  auto found = step_of("night");
  ASSERT_TRUE(step_becomes("night", found + 50)) << job.err();
  EXPECT_EQ(read_json("night", "status.json")["workers"], 3);
  stop(job);
}

TEST_F(Autoscaled, ASlowWorkerIsReplacedAndNoStepIsLost) {
  auto job = start({"run",      "--name",        "night",    "-n",         "3",      "--spare",        "1",
                    "--record", path("records"), "--policy", "stragglers", "--",     PLIANT_SYNTHETIC, "--parameters",
                    "65536",    "--compute-ms",  "20",       "--sleep",    "--slow", "1:0.3@20",       "--steps",
                    "1000000"});
  ASSERT_TRUE(view_becomes("night", {0, 2, 3})) << job.err();
  EXPECT_SAYS(job.err(), "policies want another worker in place of worker 1");
  ASSERT_TRUE(trains_on("night", 20)) << job.err();
  stop(job);
  EXPECT_SAYS(run({"verify", path("records")}).out, "OK: ");
}

TEST_F(Autoscaled, ASlowWorkerIsGivenLessToDo) {
  auto job = start({"run",
                    "--name",
                    "night",
                    "-n",
                    "3",
                    "--record",
                    path("records"),
                    "--policy",
                    "stragglers:remedy=share",
                    "--",
                    PLIANT_SYNTHETIC,
                    "--parameters",
                    "65536",
                    "--compute-ms",
                    "20",
                    "--sleep",
                    "--slow",
                    "1:0.3@20",
                    "--steps",
                    "1000000"});
  ASSERT_TRUE(job.comes_to_say("of a share for worker 1")) << job.err();
  ASSERT_TRUE(trains_on("night", 100)) << job.err();
  stop(job);
  EXPECT_SAYS(run({"verify", path("records")}).out, "3 workers, 1 view");
}

TEST_F(Autoscaled, AJobThatIsTooLargeShrinks) {
  auto job = start_job("autoscale:max=5", 5, 2);
  ASSERT_TRUE(job.comes_to_say("2 workers it is")) << job.err();
  stop(job);
}

}  // namespace
}  // namespace pliant::cli_test
