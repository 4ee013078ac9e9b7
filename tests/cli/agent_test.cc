// Killing and interrupting the agent itself.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

class AgentTest : public CliTest {
 protected:
  /// A job of workers that have all joined.
  Command start_joined(const std::string& name, int count, Words flags, Words script) {
    flags.insert(flags.end(), {"-n", std::to_string(count), "--name", name});
    Words all = {"join"};
    for (int rank = 0; rank < count; ++rank)
      all.insert(all.end(), {fmt::format("only={}", rank), fmt::format("touch={}", path(fmt::format("up-{}", rank)))});
    all.push_back("all");
    all.insert(all.end(), script.begin(), script.end());
    auto job = start_workers(flags, all);
    pids_ = wait_for_workers(name, count);
    for (int rank = 0; rank < count; ++rank)
      EXPECT_TRUE(eventually([&] { return access(path(fmt::format("up-{}", rank)).c_str(), F_OK) == 0; })) << job.err();
    return job;
  }
  void expect_all_gone() {
    for (auto pid : pids_) EXPECT_FALSE(process_runs(pid)) << pid;
    EXPECT_TRUE(nothing_left());
  }
  std::vector<pid_t> pids_;
};

TEST_F(AgentTest, WorkersOutliveAKilledAgentUntilTheyAreStopped) {
  auto agent = start_joined("orphans", 2, {},
                            {"wait=" + path("go"), "steps=20", "out=alive", "touch=" + path("done"), "forever"});
  agent.signal(SIGKILL);
  EXPECT_EQ(agent.wait().status, 137);
  std::ofstream(path("go")) << "";
  EXPECT_TRUE(eventually([&] { return access(path("done").c_str(), F_OK) == 0; })) << "a worker depends on the agent";
  for (auto pid : pids_) EXPECT_TRUE(process_runs(pid));

  auto listed = run({"ps"});
  EXPECT_NE(listed.out.find("its agent is gone"), std::string::npos) << listed.out;
  EXPECT_EQ(run({"run", "--name", "orphans", "true"}).status, 1) << "the name is still in use";
  auto stopped = run({"stop", "orphans"});
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  expect_all_gone();
}

TEST_F(AgentTest, StopForcesStubbornOrphans) {
  auto agent = start_joined("orphans", 2, {"--grace", "1000"}, {"stubborn", "touch=" + path("set"), "forever"});
  ASSERT_TRUE(eventually([&] { return access(path("set").c_str(), F_OK) == 0; }));
  agent.signal(SIGKILL);
  agent.wait();
  EXPECT_EQ(run({"stop", "--force"}).status, 0);
  expect_all_gone();
}

TEST_F(AgentTest, WhatADeadJobLeftIsSweptSilently) {
  auto agent = start_joined("late", 1, {}, {"forever"});
  agent.signal(SIGKILL);
  agent.wait();
  auto coordinator = coordinator_of("late");
  kill(coordinator, SIGKILL);  // it would sweep by itself
  kill(pids_[0], SIGKILL);
  EXPECT_TRUE(eventually([&] { return !process_runs(pids_[0]) && !process_runs(coordinator); }));
  EXPECT_FALSE(nothing_left());
  auto again = run({"run", "-n", "1", "--name", "late", "--output", "raw", "echo", "again"});
  EXPECT_EQ(again.status, 0);
  EXPECT_EQ(again.out + again.err, "again\n");
  EXPECT_TRUE(nothing_left());
}

TEST_F(AgentTest, ACoordinatorWithoutAgentAndWorkersSweepsByItself) {
  auto agent = start_joined("late", 1, {}, {"forever"});
  auto coordinator = coordinator_of("late");
  agent.signal(SIGKILL);
  agent.wait();
  EXPECT_TRUE(process_runs(coordinator));
  kill(pids_[0], SIGKILL);
  EXPECT_TRUE(eventually([&] { return !process_runs(coordinator); }));
  EXPECT_TRUE(nothing_left());
}

class Interrupted : public AgentTest, public ::testing::WithParamInterface<int> {};

TEST_P(Interrupted, NothingIsLeftBehind) {
  auto agent = start_joined("brief", 3, {}, {"steps=1000", "forever"});
  agent.signal(GetParam());
  EXPECT_EQ(agent.wait().status, 128 + GetParam());
  expect_all_gone();
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupted, ::testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT));

TEST_F(AgentTest, TheStubbornAreKilledAfterTheGraceTime) {
  auto agent = start_joined("brief", 2, {"--grace", "0.2"}, {"stubborn", "touch=" + path("set"), "forever"});
  ASSERT_TRUE(eventually([&] { return access(path("set").c_str(), F_OK) == 0; }));
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.wait().status, 143);
  expect_all_gone();
}

TEST_F(AgentTest, ASecondInterruptKillsAtOnce) {
  auto agent = start_joined("brief", 2, {"--grace", "1000"}, {"stubborn", "touch=" + path("set"), "forever"});
  ASSERT_TRUE(eventually([&] { return access(path("set").c_str(), F_OK) == 0; }));
  agent.signal(SIGINT);
  ASSERT_TRUE(agent.comes_to_say("Ctrl-C again"));
  agent.signal(SIGINT);
  EXPECT_EQ(agent.wait().status, 130);
  expect_all_gone();
}

TEST_F(AgentTest, AReaderThatDoesNotReadCannotHoldUpAnInterrupt) {
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_CLOEXEC), 0);
  auto agent = start({"run", "-n", "1", "--name", "loud", "/bin/sh", "-c",
                      "yes | head -c 4000000; echo > " + path("full") + "; sleep 1000"},
                     {}, pipe[1]);
  auto pids = wait_for_workers("loud", 1);
  ASSERT_TRUE(eventually([&] { return access(path("full").c_str(), F_OK) == 0; })) << "the worker waits for the reader";
  agent.signal(SIGINT);
  EXPECT_EQ(agent.wait().status, 130);
  EXPECT_FALSE(process_runs(pids[0]));
  EXPECT_TRUE(nothing_left());
  close(pipe[0]);
  close(pipe[1]);
}

TEST_F(AgentTest, AReaderThatIsGoneDoesNotEndTheJob) {
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_CLOEXEC), 0);
  auto agent = start({"run", "-n", "2", "/bin/sh", "-c", "seq 1 10000; exit 0"}, {}, pipe[1]);
  close(pipe[1]);
  close(pipe[0]);
  EXPECT_EQ(agent.wait().status, 0);
}

TEST_F(AgentTest, ANameRunsOnlyOnce) {
  auto agent = start_joined("twin", 1, {}, {"forever"});
  auto second = run({"run", "-n", "1", "--name", "twin", "true"});
  EXPECT_EQ(second.status, 1);
  EXPECT_EQ(lines_in(second.err), 1u);
  EXPECT_NE(second.err.find("job 'twin' is already running"), std::string::npos) << second.err;
  EXPECT_TRUE(process_runs(pids_[0]));
  EXPECT_FALSE(agent.finished());
}

TEST_F(AgentTest, AForeignDirectoryIsLeftAlone) {
  ASSERT_EQ(mkdir(base().c_str(), 0700), 0);
  auto mine = base() + "/precious";
  ASSERT_EQ(mkdir(mine.c_str(), 0700), 0);
  std::ofstream(mine + "/thesis.txt") << "years of work";
  EXPECT_EQ(run({"ps"}).status, 0);
  auto seen = run({"run", "--name", "precious", "true"});
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.err.find("in the way"), std::string::npos) << seen.err;
  EXPECT_EQ(read_all(mine + "/thesis.txt"), "years of work");
}

}  // namespace
}  // namespace pliant::cli_test
