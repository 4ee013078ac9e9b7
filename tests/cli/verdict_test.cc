// How a job ended: finished, stopped or failed, in its exit code, its last line and its records.
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

class Verdict : public CliTest {
 protected:
  void TearDown() override {
    EXPECT_TRUE(eventually([&] { return nothing_left(); }));
    CliTest::TearDown();
  }
  Command start_training(int workers, Words flags = {}, Words script = {}) {
    flags.insert(flags.end(), {"-n", std::to_string(workers), "--name", "job", "--record", path("records")});
    auto job = start_workers(flags, endless(std::move(script)));
    std::vector<std::uint64_t> ids;
    for (int id = 0; id < workers; ++id) ids.push_back(static_cast<std::uint64_t>(id));
    EXPECT_TRUE(view_becomes("job", ids)) << job.err();
    EXPECT_TRUE(step_becomes("job", 3)) << job.err();
    return job;
  }
  /// Both workers of a job that was asked for with `first` and `between`.
  static bool are_between_loops(const Command& job) {
    return eventually([&] {
      auto out = job.out();
      auto first = out.find("between two loops");
      return first != std::string::npos && out.find("between two loops", first + 1) != std::string::npos;
    });
  }
  std::string agents_word() const { return read_all(path("records/agent.jsonl")); }
  std::string coordinators_word() const { return read_all(path("records/coordinator.jsonl")); }
};

TEST_F(Verdict, FinishedIsZero) {
  auto seen = run_workers({"-n", "2", "--record", path("records")}, {"train=20"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "is done: step 20/20");
  EXPECT_SAYS(coordinators_word(), R"("text":"finished")");
  EXPECT_SAYS(agents_word(), R"("text":"finished")");
}

TEST_F(Verdict, EverybodyThatLeavesInMidLoopWithStatusZeroHasFailed) {
  auto seen = run_workers({"-n", "2", "--max-restarts", "0", "--record", path("records")}, {"quit=5", "train=100"});
  EXPECT_EQ(seen.status, 1) << seen.err;
  EXPECT_EQ(seen.err.find("is done"), std::string::npos) << seen.err;
  EXPECT_SAYS(seen.err, "job '");
  EXPECT_SAYS(seen.err, "' failed: worker ");
  EXPECT_SAYS(coordinators_word(), R"("text":"failed")");
}

/// Their first loop is finished, their work is not.
TEST_F(Verdict, EverybodyKilledBetweenTwoLoopsHasFailed) {
  auto job = start_workers({"-n", "2", "--name", "job", "--max-restarts", "0", "--record", path("records")},
                           {"first=5", "between=" + path("go on"), "train=20"});
  auto workers = wait_for_workers("job", 2);
  ASSERT_TRUE(are_between_loops(job)) << job.err();
  for (auto worker : workers) kill(worker, SIGKILL);
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 137) << seen.err;
  EXPECT_SAYS(seen.err, "job 'job' failed: ");
  auto proof = run({"verify", path("records")});
  EXPECT_EQ(proof.status, 0) << proof.out;
  EXPECT_SAYS(proof.out, "5 steps");
  EXPECT_SAYS(proof.out, ", failed\n");
}

TEST_F(Verdict, OneKilledBetweenTwoLoopsIsReplaced) {
  auto job = start_workers({"-n", "2", "--name", "job", "--record", path("records")},
                           {"first=5", "between=" + path("go on"), "train=20"});
  auto workers = wait_for_workers("job", 2);
  ASSERT_TRUE(are_between_loops(job)) << job.err();
  kill(workers[1], SIGKILL);
  ASSERT_TRUE(job.comes_to_say("worker 1 was killed")) << job.err();
  std::ofstream(path("go on")) << "";
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "is done: step 20/20");
  EXPECT_SAYS(run({"verify", path("records")}).out, ", finished\n");
}

TEST_F(Verdict, AWorkerThatEndsWithStatusZeroInMidLoopIsNamedAndReplaced) {
  auto job = start_workers({"-n", "2", "--name", "job"}, endless({"only=1", "quit=5", "all"}));
  ASSERT_TRUE(view_becomes("job", {0, 2})) << job.err();
  EXPECT_TRUE(
      job.comes_to_say("worker 1 ended with status 0 before its loop was finished, which counts as a failure; "
                       "1 worker goes on"))
      << job.err();
  let_it_end();
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Verdict, WorkersThatAreAllToldToLeaveStopTheJob) {
  auto job = start_training(2);
  for (std::uint64_t id : {0, 1}) kill(worker_of("job", id), SIGSTOP);
  for (std::uint64_t id : {0, 1}) kill(worker_of("job", id), SIGTERM);
  for (std::uint64_t id : {0, 1}) kill(worker_of("job", id), SIGCONT);
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 143) << seen.err;
  EXPECT_SAYS(seen.err, "job 'job' was stopped before it was done: step ");
  EXPECT_SAYS(agents_word(), R"("text":"stopped")");
}

TEST_F(Verdict, AStopIsNeitherDoneNorFailed) {
  auto job = start_training(2);
  EXPECT_EQ(run({"stop", "job"}).status, 0);
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 143) << seen.err;
  EXPECT_EQ(seen.err.find("is done"), std::string::npos) << seen.err;
  EXPECT_EQ(seen.err.find("failed"), std::string::npos) << seen.err;
  EXPECT_SAYS(coordinators_word(), R"("text":"stopped")");
}

TEST_F(Verdict, AnAgentThatCameLaterDoesNotCallALostJobDone) {
  auto first = start_training(2);
  first.signal(SIGKILL);
  first.wait();
  auto second = start({"run", "--attach", "job"});
  ASSERT_TRUE(eventually([&] { return read_json("job")["agent"]["pid"] == second.pid(); }));
  ASSERT_TRUE(step_becomes("job", step_of("job") + 3)) << second.err();
  for (std::uint64_t id : {0, 1}) kill(worker_of("job", id), SIGSTOP);
  for (std::uint64_t id : {0, 1}) kill(worker_of("job", id), SIGKILL);
  auto seen = second.wait();
  EXPECT_EQ(seen.status, 1) << seen.err;
  EXPECT_SAYS(seen.err, "job 'job' failed: ");
  EXPECT_EQ(seen.err.find("is done"), std::string::npos) << seen.err;
}

TEST_F(Verdict, OneThatLeftDoesNotMakeALostJobDone) {
  auto first = start_training(2);
  first.signal(SIGKILL);
  first.wait();
  auto second = start({"run", "--attach", "job"});
  ASSERT_TRUE(eventually([&] { return read_json("job")["agent"]["pid"] == second.pid(); }));
  ASSERT_TRUE(step_becomes("job", step_of("job") + 3)) << second.err();
  kill(worker_of("job", 1), SIGTERM);
  ASSERT_TRUE(view_becomes("job", {0})) << second.err();
  kill(worker_of("job", 0), SIGKILL);
  auto seen = second.wait();
  EXPECT_EQ(seen.status, 1) << seen.err;
  EXPECT_SAYS(seen.err, "job 'job' failed: ");
}

TEST_F(Verdict, ACoordinatorThatIsKilledAtTheEndDoesNotMakeItAFailure) {
  auto job = start_training(2);
  auto coordinator = coordinator_of("job");
  kill(coordinator, SIGKILL);
  let_it_end();
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Verdict, AProgramThatFailsAfterItsLoopHasFailed) {
  auto seen = run_workers({"-n", "2"}, {"train=20", "err=no room for the model", "exit=4"});
  EXPECT_EQ(seen.status, 4) << seen.err;
  EXPECT_SAYS(seen.err, "no room for the model");
  EXPECT_EQ(seen.err.find("is done"), std::string::npos) << seen.err;
}

TEST_F(Verdict, ThoseWhoWaitAreNotCountedAsGoingOn) {
  auto job = start_training(1, {"--spare", "2"});
  ASSERT_TRUE(eventually([&] { return read_json("job", "coordinator.json").value("spare", 0) == 2; })) << job.err();
  kill(worker_of("job", 0), SIGKILL);
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 137) << seen.err;
  EXPECT_EQ(seen.err.find("go on"), std::string::npos) << seen.err;
  EXPECT_EQ(seen.err.find("goes on"), std::string::npos) << seen.err;
  EXPECT_SAYS(seen.err, "no worker is left that holds the state of the training (worker 0: killed by signal 9");
}

TEST_F(Verdict, AJobThatHasLostItsStateGoesOnFromItsLastCheckpoint) {
  for (bool some_wait : {true, false}) {
    auto saved = path(some_wait ? "saved" : "saved-too");
    auto records = path(some_wait ? "records" : "records-too");
    auto job = start_workers({"-n", "2", "--spare", some_wait ? "1" : "0", "--name", "job", "--checkpoint", saved,
                              "--every", "10", "--record", records},
                             {"samples=600", "train=400"});
    ASSERT_TRUE(view_becomes("job", {0, 1})) << job.err();
    ASSERT_TRUE(eventually([&] {
      auto spare = read_json("job", "coordinator.json").value("spare", 0);
      return step_of("job") > 30 && spare == (some_wait ? 1 : 0);
    })) << job.err();
    for (std::uint64_t id : {0, 1}) kill(worker_of("job", id), SIGSTOP);
    for (std::uint64_t id : {0, 1}) kill(worker_of("job", id), SIGKILL);
    auto seen = job.wait();
    EXPECT_EQ(seen.status, 0) << seen.err;
    EXPECT_SAYS(seen.err, "going on from the checkpoint of step ");
    EXPECT_SAYS(seen.err, "is done: step 400/400");
    EXPECT_SAYS(seen.out, "done with 201\n") << "what was learned before counts";
    auto verified = run({"verify", records});
    EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
  }
}

TEST_F(Verdict, AJobThatHasLostItsStateGoesOnInTheLoopThatItWasIn) {
  auto job = start_workers(
      {"-n", "2", "--name", "job", "--checkpoint", path("saved"), "--every", "30", "--record", path("records")},
      {"first=10", "train=400"});
  ASSERT_TRUE(view_becomes("job", {0, 1})) << job.err();
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(path("saved/step-000000000030")); })) << job.err();
  for (std::uint64_t id : {0, 1}) kill(worker_of("job", id), SIGSTOP);
  for (std::uint64_t id : {0, 1}) kill(worker_of("job", id), SIGKILL);
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "going on from the checkpoint of step ");
  for (int id : {2, 3}) {
    EXPECT_SAYS(seen.out, fmt::format("[{}] done with {}\n", id, 2 * (1 + 5) + 195));
    EXPECT_EQ(seen.out.find(fmt::format("[{}] the first loop", id)), std::string::npos) << seen.out;
  }
  auto verified = run({"verify", path("records")});
  EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
}

TEST_F(Verdict, AnAgentThatCameLaterDoesNotEndAJobWhoseCoordinatorDoesNotRun) {
  auto first = start_workers({"-n", "2", "--name", "job", "--checkpoint", path("saved"), "--every", "10"},
                             {"samples=600", "train=400"});
  ASSERT_TRUE(view_becomes("job", {0, 1})) << first.err();
  ASSERT_TRUE(step_becomes("job", 30)) << first.err();
  first.signal(SIGKILL);
  first.wait();
  auto coordinator = read_json("job", "coordinator.json")["process"]["pid"].get<pid_t>();
  kill(coordinator, SIGSTOP);
  auto second = start({"run", "--attach", "job"});
  ASSERT_TRUE(eventually([&] { return read_json("job")["agent"]["pid"] == second.pid(); }));
  std::vector<pid_t> workers{worker_of("job", 0), worker_of("job", 1)};
  for (auto worker : workers) kill(worker, SIGSTOP);
  for (auto worker : workers) kill(worker, SIGKILL);
  for (auto worker : workers) ASSERT_TRUE(eventually([&] { return !process_runs(worker); }));
  usleep(200'000);  // it has seen that, and nobody says what follows
  kill(coordinator, SIGCONT);
  auto seen = second.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "going on from the checkpoint of step ");
  EXPECT_SAYS(seen.out, "done with 201\n");
}

TEST_F(Verdict, AnotherJobsCheckpointIsNotUsed) {
  auto saved = path("saved");
  auto first = run_workers({"-n", "1", "--checkpoint", path("first"), "--every", "10"}, {"train=40"});
  ASSERT_EQ(first.status, 0) << first.err;
  auto job = start_training(1, {"--checkpoint", saved, "--every", "1h"});
  std::filesystem::rename(path("first"), saved);  // with the times at which they were written
  kill(worker_of("job", 0), SIGKILL);
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 137) << seen.err;
  EXPECT_SAYS(seen.err, "it had not written a checkpoint to " + saved + " yet");
}

TEST_F(Verdict, AWorkerThatThrowsAndLivesOnHoldsNobodyUp) {
  auto job = start_workers({"-n", "2", "--name", "job"}, {"only=1", "throw=5", "all", "until=" + path("enough"),
                                                          "train=1000000", "only=1", "forever"});
  ASSERT_TRUE(view_becomes("job", {0, 2})) << job.err();
  EXPECT_TRUE(process_runs(worker_of("job", 1))) << "it caught its exception and waits";
  let_it_end();
  ASSERT_TRUE(eventually([&] { return job.out().find("[0] done with") != std::string::npos; })) << job.err();
  kill(worker_of("job", 1), SIGKILL);
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Verdict, AWorkerWhoseSessionOutlivesWhatItThrowsHoldsNobodyUp) {
  auto job = start_workers({"-n", "2", "--name", "job"},
                           {"only=1", "throw=5", "outlives", "all", "until=" + path("enough"), "train=1000000"});
  ASSERT_TRUE(view_becomes("job", {0, 2})) << job.err();
  EXPECT_TRUE(process_runs(worker_of("job", 1))) << "it caught its exception and lives on";
  ASSERT_TRUE(eventually([&] { return job.out().find("another loop: ") != std::string::npos; })) << job.out();
  for (const char* use : {"average", "another loop"})
    EXPECT_SAYS(job.out(), fmt::format("{}: an exception has left the loop of this session in step 5: since then this "
                                       "worker is no part of the job",
                                       use));
  let_it_end();
  ASSERT_TRUE(eventually([&] { return job.out().find("[0] done with") != std::string::npos; })) << job.err();
  kill(worker_of("job", 1), SIGKILL);
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "an exception has left the loop in step 5: this worker leaves its job");
}

TEST_F(Verdict, AForkedChildThatUnwindsEndsNothing) {
  auto seen = run_workers({"-n", "2"}, {"fork=5", "train=30"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "is done: step 30/30");
}

}  // namespace
}  // namespace pliant::cli_test
