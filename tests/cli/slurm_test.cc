// Jobs that srun starts, in a cluster of two nodes that exists for the test alone.
#include <sys/stat.h>

#include "cli/launched.h"
#include "cli/slurm_cluster.h"

namespace pliant::cli_test {
namespace {

class Slurm : public Launched {
 protected:
  void SetUp() override {
    Launched::SetUp();
    if (program("slurmctld").empty() || program("slurmd").empty() || program("munged").empty())
      GTEST_SKIP() << "Slurm is not installed";
    ASSERT_EQ(chmod(path("").c_str(), 0711), 0);  // munged wants all users to reach its socket
    auto tried = in_cluster({}, {"exit=0"}).wait();
    if (tried.status == 77) GTEST_SKIP() << read_all(path("slurm/why"));
    ASSERT_EQ(tried.status, 0) << tried.err;
  }
  Command in_cluster(const Words& words, const Words& script) {
    Words all = {PLIANT_SLURM_CLUSTER, path("slurm"), "2"};
    all.insert(all.end(), words.begin(), words.end());
    return start_launched(all, script, recording());
  }
};

TEST_F(Slurm, TasksTrainTogetherAndOneIsKilled) {
  auto job = in_cluster({"srun", "-n", "3", "-N", "2", "--kill-on-bad-exit=0"}, training());
  ASSERT_TRUE(all_say(job, 3) && goes_on(1)) << job.err();
  kill(pid_of(0), SIGKILL);
  ASSERT_TRUE(all_say(job, 2) && goes_on(1)) << job.out() << job.err();
  finish();
  auto seen = job.wait();
  EXPECT_EQ(count(seen.out, "done with "), 2U) << seen.out << seen.err;
  EXPECT_SAYS(seen.err, "pliant[0]: 3 processes of srun are job srun-test-1.0");
  auto proof = verdict();
  EXPECT_SAYS(proof, "OK: ");
  EXPECT_SAYS(proof, "3 workers, 2 views");
}

TEST_F(Slurm, WithoutSrunABatchScriptIsAJobOfOne) {
  std::ofstream(path("script")) << "#!/bin/sh\nexec \"$@\"\n";
  auto until_done = "sbatch \"$@\" && while squeue --noheader | grep -q .; do sleep 0.1; done";  // --wait looks rarely
  auto seen =
      in_cluster({"sh", "-c", until_done, "sh", "-n", "4", "-o", path("said"), path("script")}, {"train=2"}).wait();
  EXPECT_EQ(seen.status, 0) << seen.err << read_all(path("said"));
  EXPECT_SAYS(read_all(path("said")), "step 0: 0 of 1\n");
}

TEST_F(Slurm, WithoutSrunACommandOfSallocIsAJobOfOne) {
  auto seen = in_cluster({"salloc", "-n", "4"}, {"train=2"}).wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.out, "step 0: 0 of 1\n");
}

/// Jobs whose workers Slurm gives and takes.
class Provided : public OnCluster<CliTest> {};

TEST_F(Provided, AJobShrinksWhenNodesAreTakenAndGrowsWhenTheyComeBack) {
  START_CLUSTER("60");
  auto job = start_workers({"--name", "night", "-n", "4", "--min", "2", "--provider", "slurm:partition=spot",
                            "--address", "127.0.0.1", "--record", path("records"), "--price", "spot=1"},
                           endless({"samples=500"}), {"SLURM_CONF=" + conf()});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2, 3})) << job.err() << job.out();
  ASSERT_TRUE(step_becomes("night", 20)) << job.err();
  take_two_nodes(path("finished"));
  auto alive = [&] {
    auto status = read_json("night", "status.json");
    return status.is_object() ? status["alive"].get<int>() : 0;
  };
  ASSERT_TRUE(eventually([&] { return alive() == 2; }, kLong)) << job.err();
  EXPECT_EQ(read_json("night", "status.json")["workers"], 4) << "so many are still wanted";
  ASSERT_TRUE(trains_on("night", 20)) << job.err();
  shell("touch " + path("finished"));
  ASSERT_TRUE(eventually([&] { return alive() == 4; }, kLong)) << job.err();
  ASSERT_TRUE(trains_on("night", 20)) << job.err();
  let_it_end();
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, " will be taken away");
  EXPECT_EQ(seen.err.find("no price"), std::string::npos) << seen.err;
  auto proof = run({"verify", path("records")}).out;
  EXPECT_SAYS(proof, "OK: ");
  EXPECT_SAYS(proof, "6 workers, ");
  EXPECT_TRUE(queue_is_empty()) << shell("squeue");
  EXPECT_TRUE(nothing_left());
}

}  // namespace
}  // namespace pliant::cli_test
