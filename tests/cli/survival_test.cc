// The coordinator's and the agent's death: the job goes on, and can be taken up again.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

class Survival : public NightTest {
 protected:
  void TearDown() override {
    EXPECT_TRUE(eventually([&] { return nothing_left(); }));
    NightTest::TearDown();
  }
  Command start_training(int workers) {
    auto job = start_workers({"-n", std::to_string(workers), "--name", "night"}, endless());
    std::vector<std::uint64_t> ids;
    for (int id = 0; id < workers; ++id) ids.push_back(static_cast<std::uint64_t>(id));
    EXPECT_TRUE(view_becomes("night", ids)) << job.err();
    remember();
    return job;
  }
  /// Waits for another coordinator than this one, connected to everybody.
  bool replaced(pid_t before) {
    return eventually([&] {
      auto now = coordinator_of("night");
      return now > 0 && now != before && process_runs(now);
    });
  }
};

TEST_F(Survival, ACoordinatorThatIsKilledIsReplacedAndTheNextOneKnowsTheJob) {
  auto job = start_training(2);
  EXPECT_EQ(run({"resize", "night", "3"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  for (int kills = 0; kills < 5; ++kills) {
    auto victim = coordinator_of("night");
    auto then = step_of("night");
    kill(victim, SIGKILL);
    ASSERT_TRUE(replaced(victim)) << job.err();
    remember();
    ASSERT_TRUE(step_becomes("night", then + 5)) << "training goes on, and its progress is told";
    EXPECT_EQ(memory()["wanted"], 3);
  }
  EXPECT_EQ(read_json("night")["workers"].size(), 3u) << "nobody was started or lost";
  EXPECT_EQ(run({"resize", "night", "2"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err() << memory();
  EXPECT_EQ(run({"resize", "night", "4"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0, 1, 2, 3})) << job.err() << memory();
  let_it_end();
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Survival, AWorkerThatDiesWithTheCoordinatorIsReplaced) {
  auto job = start_training(3);
  auto victim = coordinator_of("night");
  kill(victim, SIGKILL);
  kill(worker_of("night", 0), SIGKILL);
  ASSERT_TRUE(replaced(victim));
  ASSERT_TRUE(view_becomes("night", {1, 2, 3})) << job.err() << memory();
  let_it_end();
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Survival, ACoordinatorThatIsKilledAgainAndAgainDoesNotEndTheJob) {
  auto job = start_training(2);
  pid_t victim = 0;
  for (int kills = 0; kills < 8; ++kills) {
    auto before = victim;
    ASSERT_TRUE(eventually([&] { return (victim = coordinator_of("night")) != before && process_runs(victim); }))
        << job.err();
    kill(victim, SIGKILL);
    seen_.push_back(victim);
  }
  ASSERT_TRUE(replaced(victim)) << job.err();
  ASSERT_TRUE(trains_on("night", 5)) << job.err();
  EXPECT_EQ(run({"resize", "night", "3"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err() << memory();
  let_it_end();
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(seen.err.find("failed"), std::string::npos) << seen.err;
}

TEST_F(Survival, ACoordinatorThatFailsByItselfIsNamedAndTrainingGoesOn) {
  auto job = start_training(2);
  auto lock = base() + "/night/coordinator.lock";
  unlink(lock.c_str());
  ASSERT_EQ(mkdir(lock.c_str(), 0700), 0);  // no other one can serve
  auto victim = coordinator_of("night");
  seen_.push_back(victim);
  kill(victim, SIGKILL);
  ASSERT_TRUE(job.comes_to_say("the coordinator does not stay alive: exit code 1")) << job.err();
  ASSERT_TRUE(job.comes_to_say("training goes on; resizes and replacements wait")) << job.err();
  ASSERT_EQ(rmdir(lock.c_str()), 0);
  ASSERT_TRUE(replaced(victim)) << job.err();
  EXPECT_EQ(run({"resize", "night", "3"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err() << memory();
  let_it_end();
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Survival, ThereIsOneCoordinator) {
  auto job = start_training(1);
  auto second = run({"coordinator", base() + "/night"});
  EXPECT_EQ(second.status, 3);
  EXPECT_EQ(second.err, "pliant coordinator: job 'night' has a coordinator already\n");
  EXPECT_EQ(run({"coordinator", path("nowhere")}).status, 1);
  let_it_end();
  EXPECT_EQ(job.wait().status, 0);
}

TEST_F(Survival, TheTerminalDoesNotReachTheCoordinator) {
  auto job = start_training(1);
  auto coordinator = coordinator_of("night");
  EXPECT_EQ(getsid(coordinator), coordinator);
  for (int number : {SIGINT, SIGHUP}) kill(coordinator, number);
  auto then = step_of("night");
  ASSERT_TRUE(step_becomes("night", then + 20));
  EXPECT_EQ(coordinator_of("night"), coordinator);
  EXPECT_TRUE(process_runs(coordinator));
  let_it_end();
  EXPECT_EQ(job.wait().status, 0);
}

TEST_F(Survival, WithoutItsAgentAJobGoesOnAndEnds) {
  auto job = start_training(3);
  auto coordinator = coordinator_of("night");
  ASSERT_TRUE(step_becomes("night", 5));
  EXPECT_EQ(run({"status", "night"}).out.find("as of"), std::string::npos);
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait().status, 137);
  kill(worker_of("night", 2), SIGKILL);
  ASSERT_TRUE(view_becomes("night", {0, 1})) << memory();
  EXPECT_TRUE(process_runs(coordinator));
  auto answer = run({"resize", "night", "1"});
  EXPECT_EQ(answer.status, 0) << answer.err;
  ASSERT_TRUE(view_becomes("night", {0})) << memory();
  auto more = run({"resize", "night", "5"});
  EXPECT_SAYS(more.out, "nobody starts more ('pliant run --attach night' does)");
  auto shown = run({"status", "night"}).out;
  EXPECT_SAYS(shown, "agent      gone");
  EXPECT_SAYS(shown, "progress   as of 0:");
  EXPECT_SAYS(shown, fmt::format("coordinator process {}", coordinator));
  let_it_end();  // the rest is TearDown's
}

/// The kernel sends SIGHUP to a process group with a stopped process when nobody of its session is left who could let
/// it go on.
TEST_F(Survival, AWorkerThatIsStoppedOutlivesItsAgent) {
  auto job = start_training(2);
  ASSERT_TRUE(step_becomes("night", 5));
  auto stopped = worker_of("night", 1);
  EXPECT_EQ(getsid(stopped), stopped);
  kill(stopped, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return state_of(stopped) == 'T'; }));
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait().status, 137);
  kill(stopped, SIGCONT);  // what the end of the agent brought it takes effect now at the latest
  auto second = start({"run", "--attach", "night"});
  ASSERT_TRUE(eventually([&] { return read_json("night")["agent"]["pid"] == second.pid(); }));
  ASSERT_TRUE(view_becomes("night", {0, 1})) << second.err() << memory();
  ASSERT_TRUE(trains_on("night", 5)) << second.err();
  EXPECT_TRUE(process_runs(stopped));
  let_it_end();
  auto seen = second.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Survival, AnotherAgentTakesUpTheJob) {
  auto first = start_training(2);
  auto refused = run({"run", "--attach", "night"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_SAYS(refused.err, fmt::format("job 'night' has an agent already (process {})", first.pid()));
  for (const char* begun : {"[0] step 0:", "[1] step 0:"})  // written, and copied by the first agent
    ASSERT_TRUE(eventually([&] { return first.out().find(begun) != std::string::npos; }));
  first.signal(SIGKILL);
  first.wait();
  auto second = start({"run", "--attach", "night"});
  ASSERT_TRUE(eventually([&] { return read_json("night")["agent"]["pid"] == second.pid(); }));
  EXPECT_EQ(run({"resize", "night", "3"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << second.err() << memory();
  kill(worker_of("night", 0), SIGKILL);
  ASSERT_TRUE(view_becomes("night", {1, 2, 3})) << second.err() << memory();
  let_it_end();
  auto seen = second.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "worker 0 has ended (exit status not known: another agent started it); ");
  EXPECT_EQ(seen.err.find("worker 1"), std::string::npos) << "it said goodbye: " << seen.err;
  EXPECT_SAYS(seen.err, "pliant: job 'night' is done");
  EXPECT_SAYS(seen.out, "[1] done with");
  EXPECT_SAYS(seen.out, "[3] done with");
  EXPECT_EQ(seen.out.find("step 0:"), std::string::npos) << "only what came later";
}

TEST_F(Survival, WhoLeavesInGoodOrderAfterATakeoverIsNoFailure) {
  auto first = start_training(3);
  ASSERT_TRUE(step_becomes("night", 3));  // from then on SIGTERM is a notice
  first.signal(SIGKILL);
  first.wait();
  auto second = start({"run", "--attach", "night"});
  ASSERT_TRUE(eventually([&] { return read_json("night")["agent"]["pid"] == second.pid(); }));
  kill(worker_of("night", 1), SIGTERM);
  ASSERT_TRUE(view_becomes("night", {0, 2})) << second.err() << memory();
  ASSERT_TRUE(eventually([&] { return memory().value("wanted", 0) == 2; })) << memory();
  EXPECT_EQ(memory()["restarts"], 10);
  let_it_end();
  auto seen = second.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(seen.err.find("pliant: worker"), std::string::npos) << seen.err;
  EXPECT_EQ(seen.err.find("not known"), std::string::npos) << seen.err;
}

TEST_F(Survival, AnAgentThatTakesUpAJobStartsTheCoordinatorThatIsMissing) {
  auto first = start_training(2);
  auto coordinator = coordinator_of("night");
  first.signal(SIGKILL);
  first.wait();
  kill(coordinator, SIGKILL);
  auto lost = run({"resize", "night", "3"});
  EXPECT_EQ(lost.status, 1);
  EXPECT_SAYS(lost.err, "has no coordinator");
  auto second = start({"run", "--attach", "night"});
  ASSERT_TRUE(replaced(coordinator)) << second.err();
  EXPECT_EQ(run({"resize", "night", "3"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << second.err() << memory();
  let_it_end();
  EXPECT_EQ(second.wait().status, 0);
}

TEST_F(Survival, AStopEndsAJobThatWasTakenUp) {
  auto first = start_training(2);
  first.signal(SIGKILL);
  first.wait();
  auto second = start({"run", "--attach", "night"});
  ASSERT_TRUE(eventually([&] { return read_json("night")["agent"]["pid"] == second.pid(); }));
  remember();
  EXPECT_EQ(run({"stop"}).status, 0);
  EXPECT_EQ(second.wait().status, 143);
}

TEST_F(Survival, NoJobToTakeUp) {
  auto seen = run({"run", "--attach", "ghost"});
  EXPECT_EQ(seen.status, 1);
  EXPECT_SAYS(seen.err, "no job 'ghost'");
}

}  // namespace
}  // namespace pliant::cli_test
