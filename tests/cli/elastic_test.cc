// Jobs that change while they run: workers that die, leave, wait and come.
#include <fmt/format.h>
#include <signal.h>

#include <fstream>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

class Elastic : public NightTest {
 protected:
  void TearDown() override {
    EXPECT_TRUE(nothing_left());
    NightTest::TearDown();
  }
  /// A job that trains until finish().
  Command start_training(const Words& flags) {
    Words all = {"--name", "night"};
    all.insert(all.end(), flags.begin(), flags.end());
    return start_workers(all, endless());
  }
  void kill_worker(std::uint64_t id, int signal) {
    auto pid = worker_of("night", id);
    ASSERT_GT(pid, 0);
    seen_.push_back(pid);
    kill(pid, signal);
  }
};

std::string result_of(const Outcome& seen, int id) {
  auto begin = fmt::format("[{}] done with ", id);
  auto at = seen.out.find(begin);
  if (at == std::string::npos) return fmt::format("worker {} is not done", id);
  return seen.out.substr(at + begin.size(), seen.out.find('\n', at) - at - begin.size());
}

/// All who finished it have learned the same.
void expect_one_result(const Outcome& seen, const std::vector<int>& ids) {
  for (auto id : ids) EXPECT_EQ(result_of(seen, id), result_of(seen, ids[0])) << seen.out;
}

TEST_F(Elastic, AKilledWorkerIsReplaced) {
  auto job = start_training({"-n", "3"});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  ASSERT_TRUE(step_becomes("night", 5));
  kill_worker(1, SIGKILL);
  EXPECT_TRUE(view_becomes("night", {0, 2, 3})) << job.err() << memory();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "pliant: worker 1 was killed by signal 9; 2 workers go on\n");
  expect_one_result(seen, {0, 2, 3});
}

TEST_F(Elastic, EveryWorkerMayDieInTurn) {
  auto job = start_training({"-n", "3"});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  kill_worker(0, SIGKILL);
  ASSERT_TRUE(view_becomes("night", {1, 2, 3})) << job.err() << memory();
  kill_worker(1, SIGKILL);
  ASSERT_TRUE(view_becomes("night", {2, 3, 4})) << job.err() << memory();
  kill_worker(2, SIGKILL);
  ASSERT_TRUE(view_becomes("night", {3, 4, 5})) << job.err() << memory();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  expect_one_result(seen, {3, 4, 5});
}

TEST_F(Elastic, AStoppedWorkerHoldsNobodyUpAndComesBack) {
  auto job = start_training({"-n", "3", "--record", path("records")});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  for (std::uint64_t id : {0, 1}) {
    ASSERT_TRUE(step_becomes("night", step_of("night") + 5));
    kill_worker(id, SIGSTOP);
    std::vector<std::uint64_t> others{id == 0 ? 1U : 0U, 2};
    ASSERT_TRUE(view_becomes("night", others)) << job.err() << memory();
    ASSERT_TRUE(trains_on("night", 20)) << job.err();
    kill_worker(id, SIGCONT);
    ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err() << memory();
    ASSERT_TRUE(trains_on("night", 5)) << job.err();
  }
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  expect_one_result(seen, {0, 1, 2});
  EXPECT_EQ(run({"verify", path("records")}).status, 0) << run({"verify", path("records")}).out;
}

TEST_F(Elastic, AJobThatHasFinishedDoesNotWaitForAStoppedWorker) {
  auto job = start_training({"-n", "2"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("night", 5));
  kill_worker(0, SIGSTOP);
  ASSERT_TRUE(view_becomes("night", {1})) << job.err() << memory();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  expect_one_result(seen, {1});
}

/// Of two either may be the one that is stopped, and of four more than half.
TEST_F(Elastic, WhoIsLeftGoesOnHoweverManyAreStopped) {
  auto job = start_training({"-n", "4", "--record", path("records")});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2, 3})) << job.err();
  ASSERT_TRUE(step_becomes("night", 5));
  for (std::uint64_t id : {0, 1, 3}) kill_worker(id, SIGSTOP);
  ASSERT_TRUE(view_becomes("night", {2})) << job.err() << memory();
  ASSERT_TRUE(trains_on("night", 20)) << job.err();
  kill_worker(3, SIGKILL);
  for (std::uint64_t id : {0, 1}) kill_worker(id, SIGCONT);
  ASSERT_TRUE(view_becomes("night", {0, 1, 2, 4})) << job.err() << memory();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  expect_one_result(seen, {0, 1, 2, 4});
  EXPECT_EQ(run({"verify", path("records")}).status, 0) << run({"verify", path("records")}).out;
}

/// The last one that runs was told to leave: not before somebody who comes back has the state.
TEST_F(Elastic, WhoeverIsAloneLeavesWhenAStoppedOneIsBack) {
  auto job = start_training({"-n", "2", "--record", path("records")});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("night", 5));
  kill_worker(1, SIGSTOP);
  ASSERT_TRUE(view_becomes("night", {0})) << job.err() << memory();
  kill_worker(0, SIGTERM);
  ASSERT_TRUE(trains_on("night", 20)) << job.err();
  kill_worker(1, SIGCONT);
  ASSERT_TRUE(view_becomes("night", {1})) << job.err() << memory();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(run({"verify", path("records")}).status, 0) << run({"verify", path("records")}).out;
}

/// Nobody waits for one that will not come: it dies, or all are told to stop.
TEST_F(Elastic, WhoeverIsAloneDoesNotWaitForTheDead) {
  auto job = start_training({"-n", "2", "--max-restarts", "0"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("night", 5));
  kill_worker(1, SIGSTOP);
  ASSERT_TRUE(view_becomes("night", {0})) << job.err() << memory();
  kill_worker(0, SIGTERM);
  ASSERT_TRUE(trains_on("night", 20)) << job.err();
  kill_worker(1, SIGKILL);
  EXPECT_EQ(job.wait().status, 143) << job.err();
}

/// It has joined, and its neighbours have nothing of it but the number of its process.
TEST_F(Elastic, AWorkerThatIsStoppedBeforeItHasGreetedIsLeftBehind) {
  auto job = start_workers({"--name", "night", "-n", "2"},
                           endless({"only=1", "alike", "join", fmt::format("kill={}", SIGSTOP), "all"}));
  ASSERT_TRUE(view_becomes("night", {0})) << job.err() << memory();
  ASSERT_TRUE(trains_on("night", 20)) << job.err();
  kill_worker(1, SIGKILL);
  ASSERT_TRUE(view_becomes("night", {0, 2})) << job.err() << memory();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "does not run: the others go on without it until it does");
  expect_one_result(seen, {0, 2});
}

TEST_F(Elastic, AStopWaitsForNoStoppedWorker) {
  auto job = start_training({"-n", "2", "--grace", "60"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("night", 5));
  kill_worker(1, SIGSTOP);
  ASSERT_TRUE(view_becomes("night", {0})) << job.err() << memory();
  EXPECT_EQ(run({"stop", "night"}).status, 0);
  EXPECT_EQ(job.wait().status, 143) << job.err();
}

TEST_F(Elastic, WithoutRestartsTheOthersGoOn) {
  auto job = start_training({"-n", "3", "--max-restarts", "1"});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  kill_worker(2, SIGKILL);
  ASSERT_TRUE(view_becomes("night", {0, 1, 3})) << job.err() << memory();
  kill_worker(0, SIGKILL);
  ASSERT_TRUE(view_becomes("night", {1, 3})) << job.err() << memory();
  auto then = step_of("night");
  ASSERT_TRUE(step_becomes("night", then + 20));
  EXPECT_EQ(read_json("night")["workers"].back()["id"], 3u) << "nobody was started";
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  expect_one_result(seen, {1, 3});
}

TEST_F(Elastic, ResizeUpAndDownAndUpAgain) {
  auto job = start_training({"-n", "2", "--max", "4"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  auto up = run({"resize", "night", "4"});
  EXPECT_EQ(up.out, "job 'night' will have 4 workers; it has 2 now\n") << up.err;
  ASSERT_TRUE(view_becomes("night", {0, 1, 2, 3})) << job.err() << memory();
  EXPECT_EQ(run({"resize", "night", "1"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0})) << job.err() << memory();
  ASSERT_TRUE(eventually([&] { return memory().value("spare", 0) == 3; })) << memory();
  auto listed = run({"ps"}).out;
  EXPECT_SAYS(listed, "1/1+3");
  auto shown = run({"status"}).out;
  EXPECT_SAYS(shown, "view       1 member (epoch ");
  EXPECT_SAYS(shown, "1 wanted, 3 spare");
  auto detached = worker_of("night", 1);
  EXPECT_TRUE(process_runs(detached)) << "it stays warm";
  EXPECT_EQ(run({"resize", "night", "3"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err() << memory();
  EXPECT_EQ(memory()["view"]["members"][1]["pid"], detached) << "the same process";
  EXPECT_EQ(read_json("night")["workers"].size(), 4u);
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  expect_one_result(seen, {0, 1, 2});
  EXPECT_SAYS(seen.out, "[3] done with");  // the spare one ends with the job
}

TEST_F(Elastic, ResizeIsRefusedInOneLine) {
  auto job = start_training({"-n", "2", "--min", "2", "--max", "3"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  for (auto [count, reason] : {std::pair("0", "at least one worker"), std::pair("1", "at least 2 workers (--min)"),
                               std::pair("4", "at most 3 workers (--max)")}) {
    auto seen = run({"resize", "night", count});
    EXPECT_EQ(seen.status, 1);
    EXPECT_EQ(lines_in(seen.err), 1u);
    EXPECT_SAYS(seen.err, reason);
  }
  auto unknown = run({"resize", "day", "3"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_SAYS(unknown.err, "no job 'day'; these are running: night");
  EXPECT_EQ(finish(job).status, 0);
}

TEST_F(Elastic, BeginsWithTheLeastAndTakesTheOthersIn) {
  auto job =
      start_workers({"-n", "3", "--min", "2", "--name", "night"}, endless({"only=2", "wait=" + path("late"), "all"}));
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("night", 3));
  std::ofstream(path("late")) << "";
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err() << memory();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  expect_one_result(seen, {0, 1, 2});
}

TEST_F(Elastic, WhoIsAskedToLeaveLeavesAndIsNotReplaced) {
  auto job = start_training({"-n", "3"});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  ASSERT_TRUE(step_becomes("night", 3));
  kill_worker(1, SIGTERM);
  ASSERT_TRUE(view_becomes("night", {0, 2})) << job.err() << memory();
  ASSERT_TRUE(eventually([&] { return memory().value("wanted", 0) == 2; })) << memory();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.out, "[1] left with");
  EXPECT_EQ(seen.err.find("worker 1"), std::string::npos) << "that is no failure: " << seen.err;
  expect_one_result(seen, {0, 2});
}

TEST_F(Elastic, AStopLetsAllLeave) {
  auto job = start_training({"-n", "3"});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  ASSERT_TRUE(step_becomes("night", 3));
  for (auto pid : processes_of("night")) seen_.push_back(pid);
  EXPECT_EQ(run({"stop", "night"}).status, 0);
  EXPECT_EQ(job.wait().status, 143);
}

TEST_F(Elastic, AProgramThatDiesAgainAndAgainDoesNotEndTheOthers) {
  auto job = start_workers({"-n", "2", "--max-restarts", "2", "--name", "night"},
                           endless({"only=1", "crash=5", "only=2", "exit=3", "only=3", "exit=3", "all"}));
  ASSERT_TRUE(eventually([&] { return memory().is_object() && memory().value("restarts", 9) < 0; })) << memory();
  ASSERT_TRUE(view_becomes("night", {0})) << job.err() << memory();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "pliant: worker 1 ended with exit code 7; 1 worker goes on\n");
}

}  // namespace
}  // namespace pliant::cli_test
