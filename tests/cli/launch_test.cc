// Jobs of processes that something else than `pliant run` has started: mpirun, mpiexec, or the test with the same
// variables.
#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>

#include "cli/cable.h"
#include "cli/launched.h"

namespace pliant::cli_test {
namespace {

// ---- Open MPI ----

class Mpirun : public Launched {
 protected:
  void SetUp() override {
    Launched::SetUp();
    mpirun_ = program("mpirun.openmpi");
    if (mpirun_.empty()) GTEST_SKIP() << "Open MPI is not installed";
  }
  /// On this machine only: it needs no ssh for that, if it is told so.
  Words mpirun_of(int processes) const {
    return {mpirun_, "--allow-run-as-root",    "--oversubscribe", "--bind-to", "none", "--mca", "plm", "isolated",
            "-n",    std::to_string(processes)};
  }
  /// Without --enable-recovery mpirun kills everybody when one dies.
  Command mpirun(const Words& script, const Words& more = {}) {
    auto words = mpirun_of(3);
    words.insert(words.end(), more.begin(), more.end());
    return start_launched(words, script, recording());
  }
  std::string mpirun_;
};

TEST_F(Mpirun, ProcessesTrainTogetherAndTheirRecordsAreProved) {
  auto job = mpirun({"samples=500", "train=120"});
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(count(seen.out, "step 0: "), 3U) << seen.out;
  EXPECT_EQ(count(seen.out, " of 3\n"), 3U) << seen.out;
  EXPECT_EQ(count(seen.out, "done with 61\n"), 3U) << seen.out;
  EXPECT_SAYS(seen.err, "pliant[0]: 3 processes of mpirun are job mpirun-");
  EXPECT_SAYS(verdict(), "OK: 120 steps, 2 epochs, ");
}

TEST_F(Mpirun, OneIsKilledAndTheOthersFinish) {
  for (int victim : {2, 0}) {
    auto job = mpirun(training(), {"--enable-recovery"});
    ASSERT_TRUE(all_say(job, 3) && goes_on(1)) << job.err();
    kill(pid_of(victim), SIGKILL);
    ASSERT_TRUE(all_say(job, 2) && goes_on(1)) << job.out() << job.err();
    finish();
    auto seen = job.wait();
    EXPECT_EQ(count(seen.out, "done with "), 2U) << seen.out << seen.err;
    auto proof = verdict();
    EXPECT_SAYS(proof, "OK: ");
    EXPECT_SAYS(proof, "3 workers, 2 views");
    std::error_code ignored;
    for (const char* name : {"records", "enough"}) std::filesystem::remove_all(path(name), ignored);
  }
}

TEST_F(Mpirun, OneIsAskedToGoAndTheOthersFinish) {
  auto job = mpirun(training());
  ASSERT_TRUE(all_say(job, 3) && goes_on(1)) << job.err();
  kill(pid_of(1), SIGTERM);
  ASSERT_TRUE(all_say(job, 2) && goes_on(0)) << job.out() << job.err();
  finish();
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(count(seen.out, "left with "), 1U) << seen.out;
  EXPECT_EQ(count(seen.out, "done with "), 2U) << seen.out;
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Mpirun, TwoJobsAtATimeDoNotMeet) {
  auto one = mpirun({"train=40"});
  auto other = start_launched(mpirun_of(2), {"train=40"});
  auto seen = one.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(count(seen.out, " of 3\n"), 3U) << seen.out;
  seen = other.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(count(seen.out, " of 2\n"), 2U) << seen.out;
}

// ---- MPICH ----

TEST_F(Launched, MpiexecNeedsAName) {
  auto mpiexec = program("mpiexec.hydra");
  if (mpiexec.empty()) GTEST_SKIP() << "MPICH is not installed";
  auto seen = start_launched({mpiexec, "-n", "2"}, {"train=40"}).wait();
  EXPECT_NE(seen.status, 0);
  EXPECT_SAYS(seen.err, "set PLIANT_JOB to one that no other job has");
  seen = start_launched({mpiexec, "-n", "2"}, {"train=40"}, {"PLIANT_JOB=named"}).wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(count(seen.out, " of 2\n"), 2U) << seen.out;
  EXPECT_SAYS(seen.err, "2 processes of mpiexec are job mpiexec-named");
}

// ---- the environment alone ----

class Environment : public Launched {
 protected:
  /// The variables of Open MPI's mpirun, for a process that the test itself starts.
  static Words as_mpirun(int rank, int size) {
    return {fmt::format("OMPI_COMM_WORLD_RANK={}", rank), fmt::format("OMPI_COMM_WORLD_SIZE={}", size),
            "PMIX_NAMESPACE=71"};
  }
};

TEST_F(Environment, WhoIsToldNotToLookTrainsAlone) {
  auto variables = as_mpirun(1, 2);
  variables.push_back("PLIANT_LAUNCH=none");
  auto seen = start_launched({}, {"train=2"}, variables).wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.out, "step 0: 0 of 1\n");
}

TEST_F(Environment, MistakesAreOneLine) {
  auto says = [&](Words variables, const Words& more, const std::string& what) {
    variables.insert(variables.begin(), more.begin(), more.end());
    auto seen = start_launched({}, {"train=1"}, variables).wait();
    EXPECT_EQ(seen.status, 1) << seen.err;
    EXPECT_SAYS(seen.err, what);
    EXPECT_EQ(lines_in(seen.err), 1U) << seen.err;
  };
  says(as_mpirun(2, 2), {}, "OMPI_COMM_WORLD_RANK is 2, but OMPI_COMM_WORLD_SIZE is 2");
  says(as_mpirun(0, 2), {"PLIANT_PATIENCE=soon"}, "PLIANT_PATIENCE: 'soon' is not a number of seconds");
  says(as_mpirun(0, 2), {"PLIANT_PATIENCE=0.2"}, "1 of 2 processes came within 0.2 s: missing rank 1");
  says(as_mpirun(1, 2), {"PLIANT_PATIENCE=0.2"}, "rank 0 was not found within 0.2 s");
  says(as_mpirun(0, 2), {"PLIANT_INTERFACE=nothing0"}, "no interface 'nothing0'");
  says(as_mpirun(0, 2), {"PLIANT_DIR="}, "neither PLIANT_DIR nor HOME is set");
}

TEST_F(Environment, WhoWaitsForOthersCanBeInterrupted) {
  for (int rank : {0, 1}) {
    auto job = start_launched({}, {"pid=" + path(fmt::format("pid-{}", rank)), "train=1"}, as_mpirun(rank, 2));
    ASSERT_TRUE(eventually([&] { return rank == 0 ? !nothing_left() : pid_of(rank) > 0; })) << job.err();
    job.signal(SIGINT);
    EXPECT_EQ(job.wait().status, 128 + SIGINT);
    std::error_code ignored;
    std::filesystem::remove_all(base(), ignored);  // the note; whoever is rank 0 next would replace it
  }
}

class LaunchedFarApart : public Environment {
 protected:
  void SetUp() override {
    Environment::SetUp();
    if (!cable_.works()) GTEST_SKIP() << "no network namespaces can be made here";
  }
  Command start_in(const std::string& where, int rank, int size) {
    auto variables = recording();
    for (const auto& variable : as_mpirun(rank, size)) variables.push_back(variable);
    variables.push_back("PLIANT_INTERFACE=eth0");
    variables.push_back("PLIANT_SILENCE_MS=60000");  // a crowded machine is no reason to lose anybody
    return start_launched({program("ip"), "netns", "exec", where}, training(), variables);
  }
  Cable cable_;
};

TEST_F(LaunchedFarApart, TheyMeetOverTheNetworkAndSurviveADeath) {
  auto zero = start_in(cable_.a, 0, 3);
  auto one = start_in(cable_.a, 1, 3);
  auto two = start_in(cable_.b, 2, 3);
  ASSERT_TRUE(says(two, 2, 3) && goes_on(1)) << zero.err() << two.err();
  kill(pid_of(1), SIGKILL);  // by rank 0's kernel's word
  ASSERT_TRUE(says(two, 1, 2)) << zero.err() << two.err();
  ASSERT_TRUE(says(zero, 0, 2) && goes_on(2)) << zero.err() << two.err();
  finish();
  EXPECT_EQ(zero.wait().status, 0) << zero.err();
  EXPECT_EQ(two.wait().status, 0) << two.err();
  EXPECT_EQ(one.wait().status, 128 + SIGKILL);
  EXPECT_SAYS(verdict(), "OK: ");
}

}  // namespace
}  // namespace pliant::cli_test
