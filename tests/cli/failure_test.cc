// How a job ends when a worker fails: whose exit status, whose last words, and that nobody hangs.
#include <signal.h>

#include <string>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

using std::string;

class Failing : public CliTest {
 protected:
  void TearDown() override {
    EXPECT_TRUE(nothing_left());
    CliTest::TearDown();
  }
};

TEST_F(Failing, AllGoodIsZeroAndQuiet) {
  auto seen = run({"run", "-n", "3", "true"});
  EXPECT_EQ(seen.status, 0);
  EXPECT_EQ(seen.out + seen.err, "");
}

TEST_F(Failing, TheExitCodeIsThatOfTheFailedWorker) {
  auto seen = run_workers({"-n", "3"}, {"only=1", "err=my last words", "exit=3", "all", "forever"});
  EXPECT_EQ(seen.status, 3);
  EXPECT_SAYS(seen.err, "worker 1 ended after");
  EXPECT_SAYS(seen.err, "exit code 3");
  EXPECT_SAYS(seen.err, "last words of worker 1 (stderr):\n    my last words\n");
}

TEST_F(Failing, ASignalIs128More) {
  auto seen = run_workers({"-n", "2"}, {"only=0", "out=only on stdout", "kill=9", "all", "forever"});
  EXPECT_EQ(seen.status, 137);
  EXPECT_SAYS(seen.err, "worker 0 ended after");
  EXPECT_SAYS(seen.err, "killed by signal 9 (Killed)");
  EXPECT_SAYS(seen.err, "last words of worker 0 (stdout):\n    only on stdout\n");
}

TEST_F(Failing, OnlyTheLastTenLinesAreRepeated) {
  auto seen = run({"run", "-n", "1", "--output", "quiet", "/bin/sh", "-c", "seq 1 5000 >&2; exit 4"});
  EXPECT_EQ(seen.status, 4);
  EXPECT_SAYS(seen.err, "    4991\n");
  EXPECT_SAYS(seen.err, "    5000\n");
  EXPECT_EQ(seen.err.find("4990"), string::npos);
}

TEST_F(Failing, ProgramsThatNeverJoinFailTheSameWay) {
  auto seen = run({"run", "-n", "3", "/bin/sh", "-c", "test $PLIANT_WORKER = 2 && exit 5; sleep 1000"});
  EXPECT_EQ(seen.status, 5);
  EXPECT_SAYS(seen.err, "worker 2 ended after");
}

TEST_F(Failing, ACrashAtTheStartDoesNotLeaveTheOthersWaiting) {
  auto seen = run_workers({"-n", "3"}, {"only=2", "err=no GPU here", "exit=6", "all", "join", "forever"});
  EXPECT_EQ(seen.status, 6);
  EXPECT_SAYS(seen.err, "worker 2 ended after");
  EXPECT_SAYS(seen.err, "no GPU here");
}

TEST_F(Failing, WhoLeavesBeforeJoiningIsNamedToThoseWhoWait) {
  auto seen = run_workers({"-n", "2"}, {"only=1", "exit=0", "all", "join", "forever"});
  EXPECT_EQ(seen.status, 9);
  EXPECT_SAYS(seen.err, "refused: worker 1 ended before the job began (exit code 0)");
}

TEST_F(Failing, AJobThatAllItsWorkersFailHasFailed) {
  auto seen = run_workers({"-n", "2", "--max-restarts", "3"}, {"crash=5", "train=100"});
  EXPECT_EQ(seen.status, 7) << seen.err;
  EXPECT_SAYS(seen.err, "exit code 7");
  EXPECT_SAYS(seen.err, "failed: worker ");
}

TEST_F(Failing, TheOnlyWorkerOfAJobIsTheJob) {
  auto job = start_workers({"-n", "1", "--name", "solo"}, {"train=1000000"});
  auto pids = wait_for_workers("solo", 1);
  ASSERT_TRUE(view_becomes("solo", {0})) << job.err();
  kill(pids[0], SIGKILL);
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 137);
  EXPECT_SAYS(seen.err, "failed: worker 0 ended after");
}

TEST_F(Failing, LeavingInGoodOrderHarmsNobody) {
  auto seen = run_workers({"-n", "3"}, {"join", "only=1", "bye", "exit=0", "all", "await=1", "steps=5", "out=done"});
  EXPECT_EQ(seen.status, 0);
  EXPECT_NE(seen.out.find("[0] done\n"), string::npos);
  EXPECT_NE(seen.out.find("[2] done\n"), string::npos);
}

TEST_F(Failing, TheStubbornAreKilledAfterTheGraceTime) {
  auto seen = run_workers({"-n", "3", "--grace", "0.2"}, {"stubborn", "only=1", "exit=3", "all", "forever"});
  EXPECT_EQ(seen.status, 3);
}

TEST_F(Failing, AStoppedWorkerIsEndedToo) {
  auto seen = run_workers({"-n", "2"}, {"only=0", "kill=19", "all", "exit=3"});
  EXPECT_EQ(seen.status, 3);
}

TEST_F(Failing, WhatWorkersLeaveBehindInTheirGroupEndsWithTheJob) {
  auto seen = run({"run", "-n", "2", "--output", "raw", "--grace", "0.2", "/bin/sh", "-c",
                   "(trap '' TERM; while :; do sleep 1; done) & echo $!"});
  EXPECT_EQ(seen.status, 0);
  for (std::size_t at = 0; at < seen.out.size(); at = seen.out.find('\n', at) + 1)
    EXPECT_FALSE(process_runs(std::stoi(seen.out.substr(at)))) << seen.out;
  EXPECT_EQ(lines_in(seen.out), 2u);
}

}  // namespace
}  // namespace pliant::cli_test
