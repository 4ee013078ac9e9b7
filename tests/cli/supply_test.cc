// Where workers come from and what they cost: spares, traces, notices, the ledger.
#include <fmt/format.h>
#include <signal.h>

#include <fstream>

#include "cli/harness.h"
#include "cli/notice_service.h"

namespace pliant::cli_test {
namespace {

class Supply : public CliTest {
 protected:
  void TearDown() override {
    EXPECT_TRUE(nothing_left());
    CliTest::TearDown();
  }
  /// A job that trains until finish(); whoever is through with it does `then`.
  Command start_training(const Words& flags, const Words& then = {}) {
    Words all = {"--name", "night", "--record", path("records")};
    all.insert(all.end(), flags.begin(), flags.end());
    auto script = endless({"samples=500"});
    script.insert(script.end(), then.begin(), then.end());
    return start_workers(all, script);
  }
  std::string trace(const std::string& text) {
    std::ofstream(path("spot.csv")) << text;
    return path("spot.csv");
  }
  /// A further line of the trace of a job that runs.
  void goes_on(const std::string& line) { std::ofstream(path("spot.csv"), std::ios::app) << line; }
  nlohmann::json ledger() {
    auto status = read_json("night", "status.json");
    return status.is_object() ? status["ledger"] : nlohmann::json();
  }
  std::string verdict() {
    auto seen = run({"verify", path("records")});
    return seen.out + seen.err;
  }
};

TEST_F(Supply, ASpareTakesThePlaceOfTheDead) {
  auto job = start_training({"-n", "2", "--spare", "1"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  ASSERT_EQ(wait_for_workers("night", 3).size(), 3U);
  ASSERT_TRUE(eventually([&] { return read_json("night", "coordinator.json")["spare"] == 1; }));
  ASSERT_TRUE(step_becomes("night", 5)) << job.err();
  kill(worker_of("night", 1), SIGKILL);
  EXPECT_TRUE(view_becomes("night", {0, 2})) << job.err();
  ASSERT_TRUE(trains_on("night", 5)) << job.err();
  EXPECT_TRUE(eventually([&] { return worker_of("night", 3) > 0; })) << "and there is another spare";
  EXPECT_EQ(finish(job).status, 0);
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Supply, ATraceTakesWorkersAwayAndGivesThemBack) {
  auto file = trace("seconds,capacity,price\n0,3,0.9\n0.1,3,0.8\n");
  auto job = start_training({"-n", "3", "--trace", file, "--status", "plain"});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  ASSERT_TRUE(trains_on("night", 1)) << job.err();
  goes_on("0.2,1,0.3\n");
  ASSERT_TRUE(view_becomes("night", {0})) << job.err();
  goes_on("0.3,many,0.6\n");
  ASSERT_TRUE(job.comes_to_say("'0.3,many,0.6' is not seconds,capacity,price: what it said before holds\n"))
      << job.err();
  trace("0,3,0.6\n");
  ASSERT_TRUE(view_becomes("night", {0, 3, 4})) << job.err();
  ASSERT_TRUE(trains_on("night", 20)) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "pliant: the trace takes 2 of 3 slots away\n");
  EXPECT_EQ(seen.err.find("go on"), std::string::npos) << "nobody has died: " << seen.err;
  EXPECT_SAYS(seen.err, " in money\n");
  EXPECT_SAYS(verdict(), "each used once, 5 workers, ");
}

TEST_F(Supply, SlotsThatComeBackWhileTheirWorkersAreStillThereAreFilledAgain) {
  auto file = trace("0,3,0\n");
  auto job = start_training({"-n", "3", "--trace", file, "--grace", "600"}, {"wait=" + path("gone")});
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  ASSERT_TRUE(trains_on("night", 1)) << job.err();
  goes_on("0.1,1,0\n");
  ASSERT_TRUE(view_becomes("night", {0})) << job.err();
  goes_on("0.2,3,3600\n");
  ASSERT_TRUE(eventually([&] { return !ledger().empty() && ledger()[0]["money"] > 0; })) << "the slots are back";
  std::ofstream(path("gone")) << "";
  EXPECT_TRUE(view_becomes("night", {0, 3, 4})) << job.err();
  EXPECT_TRUE(trains_on("night", 1)) << job.err();
  EXPECT_EQ(finish(job).status, 0) << job.err();
  EXPECT_SAYS(verdict(), "each used once, 5 workers, ");
}

TEST_F(Supply, ATraceBelowTheMinimumChangesNothing) {
  auto file = trace("0,3,1\n1,0,1\n");
  auto job = start_training({"-n", "2", "--min", "2", "--trace", file});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  ASSERT_TRUE(job.comes_to_say("(--min)")) << job.err();
  ASSERT_TRUE(trains_on("night", 20)) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "pliant: 0 workers could be had, but the job has at least 2 (--min): it keeps them\n");
  EXPECT_SAYS(verdict(), "2 workers, 1 view");
}

TEST_F(Supply, ATraceWithTooFewAtTheBeginningIsWaitedFor) {
  auto file = trace("0,1,1\n");
  auto job = start_training({"-n", "2", "--trace", file});
  ASSERT_TRUE(job.comes_to_say("pliant: 1 of 2 workers can be had: the job waits (--min lets it begin with fewer)\n"));
  goes_on("0.1,2,1\n");
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  EXPECT_EQ(finish(job).status, 0) << job.err();
}

TEST_F(Supply, WhatMakesNoSenseIsRefusedBeforeAnythingIsStarted) {
  auto refused = [&](const Words& flags) {
    auto seen = run_workers(flags, {"touch=" + path("started")});
    EXPECT_NE(seen.status, 0);
    return seen.err;
  };
  EXPECT_SAYS(refused({"--trace", trace("0,2,1\n0,3,1\n")}), "spot.csv:2: times must ascend");
  EXPECT_SAYS(refused({"--trace", trace("0,2,-1\n")}), "spot.csv:1: a price cannot be less than nothing");
  EXPECT_SAYS(refused({"--trace", path("nowhere.csv")}), "nowhere.csv cannot be read");
  EXPECT_SAYS(refused({"--price", "-1"}), "a price cannot be less than nothing");
  EXPECT_SAYS(refused({"--price", "spot=cheap"}), "'spot=cheap' is not the price of a worker's hour");
  EXPECT_SAYS(refused({"--provider", "cloud"}), "there is no provider 'cloud'");
  EXPECT_SAYS(refused({"--provider", "slurm"}), "-n says so");
  EXPECT_SAYS(refused({"--notice-url", "https://here/"}), "https");
  EXPECT_TRUE(read_all(path("started")).empty());
}

TEST_F(Supply, TheLedgerIsShownAndCarriedOver) {
  auto job = start_training({"-n", "2", "--price", "3600", "--class", "firm", "--status", "plain"});
  ASSERT_TRUE(step_becomes("night", 10)) << job.err();
  ASSERT_TRUE(eventually([&] { return ledger().size() == 1 && ledger()[0]["training"] > 0; })) << ledger();
  EXPECT_EQ(ledger()[0]["class"], "firm");
  kill(job.pid(), SIGKILL);
  auto before = ledger()[0]["training"].get<double>();
  auto next = start({"run", "--attach", "night", "--status", "plain"});
  ASSERT_TRUE(eventually([&] { return !ledger().empty() && ledger()[0]["training"] > before; })) << next.err();
  auto seen = finish(next);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, " worker-seconds of work (");
  EXPECT_SAYS(seen.err, " in money\n");
  EXPECT_SAYS(read_all(path("records/agent.jsonl")), R"("event":"bill")");
}

TEST_F(Supply, AMachineThatIsTakenAwayIsLeftInTime) {
  cli::Service cloud({cli::kNothing, cli::kNothing, cli::ok(R"({"action": "terminate", "seconds": 60})")});
  auto job = start_training({"-n", "2", "--notice-url", cloud.url().text(), "--checkpoint", path("saved")});
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 128 + SIGTERM) << seen.err;
  EXPECT_SAYS(seen.err, "pliant: this machine will be taken away in 60 s (");
  EXPECT_SAYS(verdict(), "OK: ");
}

}  // namespace
}  // namespace pliant::cli_test
