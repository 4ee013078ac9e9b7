// --record: what agent and coordinator write down beside the workers' steps.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

using nlohmann::json;

class Records : public CliTest {
 protected:
  /// A job that trains until finish().
  Command start_training(const Words& flags) {
    Words all = {"--name", "night", "--record", path("records")};
    all.insert(all.end(), flags.begin(), flags.end());
    return start_workers(all, endless());
  }
  /// The lines of a file of the records.
  std::vector<json> events(const std::string& who) const {
    std::vector<json> all;
    std::istringstream lines(read_all(path("records/" + who + ".jsonl")));
    for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line, nullptr, false));
    return all;
  }
  /// The texts of all events of this kind, with "N: " in front if they are about worker N.
  Words texts(const std::string& who, const std::string& what) const {
    Words found;
    for (const auto& event : events(who)) {
      if (event.value("event", "") != what) continue;
      auto about = event.contains("worker") ? fmt::format("{}: ", event["worker"].get<int>()) : "";
      found.push_back(about + event.value("text", ""));
    }
    return found;
  }
};

bool one_ends_with(const Words& texts, const std::string& end) {
  return std::ranges::any_of(texts, [&](const auto& text) { return text.ends_with(end); });
}

TEST_F(Records, TheCoordinatorHearsInWhichViewTheDeadWas) {
  auto job = start_training({"-n", "2", "--max", "4"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  EXPECT_EQ(run({"resize", "night", "3"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  auto is_told = [&](std::uint64_t victim) {
    EXPECT_TRUE(trains_on("night", 5));
    auto epoch = read_json("night", "coordinator.json")["view"]["epoch"].get<int>();
    EXPECT_GT(epoch, 1);
    kill(worker_of("night", victim), SIGKILL);
    auto expected = fmt::format("{}: epoch {}", victim, epoch);
    return eventually([&] { return one_ends_with(texts("coordinator", "last view"), expected); });
  };
  EXPECT_TRUE(is_told(0));
  ASSERT_TRUE(view_becomes("night", {1, 2, 3})) << job.err();
  job.signal(SIGKILL);
  job.wait();
  auto second = start({"run", "--attach", "night"});
  ASSERT_TRUE(eventually([&] { return read_json("night")["agent"]["pid"] == second.pid(); }));
  EXPECT_TRUE(is_told(1)) << "by an agent that did not start it";
  ASSERT_TRUE(view_becomes("night", {2, 3, 4})) << second.err();
  auto seen = finish(second);
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Records, TheCoordinatorWritesDownItsPart) {
  auto job = start_training({"-n", "2", "--max", "4"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("night", 5));
  auto first = coordinator_of("night");
  kill(first, SIGKILL);
  ASSERT_TRUE(eventually([&] { return coordinator_of("night") != first; }));
  auto second = coordinator_of("night");
  ASSERT_TRUE(eventually([&] { return texts("coordinator", "agent").size() == 2; }));
  EXPECT_EQ(run({"resize", "night", "3"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0, 1, 2})) << job.err();
  EXPECT_EQ(run({"resize", "night", "5"}).status, 1);
  kill(worker_of("night", 1), SIGTERM);
  ASSERT_TRUE(view_becomes("night", {0, 2})) << job.err();
  ASSERT_TRUE(eventually([&] { return texts("coordinator", "ended").size() == 1; }));
  EXPECT_EQ(finish(job).status, 0) << job.err();

  auto all = json(events("coordinator")).dump(2);
  for (const auto& event : events("coordinator")) {
    EXPECT_EQ(event.value("kind", ""), "event") << event;
    EXPECT_GT(event.value("t", 0.0), 1.6e9) << event;
  }
  EXPECT_EQ(texts("coordinator", "begun"),
            (Words{fmt::format("process {}", first), fmt::format("process {}, from an earlier one's note", second)}));
  EXPECT_EQ(texts("coordinator", "agent"), Words(2, fmt::format("process {}", job.pid())));
  EXPECT_EQ(texts("coordinator", "start"), (Words{"0: ", "1: ", "2: "}));
  EXPECT_EQ(texts("coordinator", "joined").size(), 5u) << all;  // those of the first one came again
  EXPECT_EQ(texts("coordinator", "resize"), (Words{"3 workers", "5 workers"}));
  EXPECT_EQ(texts("coordinator", "answer"), (Words{"yes: job 'night' will have 3 workers; it has 2 now",
                                                   "no: job 'night' has at most 4 workers (--max)"}));
  EXPECT_EQ(texts("coordinator", "view").front(), "epoch 1, term 1, workers 0 1");
  EXPECT_TRUE(one_ends_with(texts("coordinator", "plan"), "workers 0 1 2")) << all;
  EXPECT_TRUE(one_ends_with(texts("coordinator", "view"), "workers 0 1 2")) << all;
  EXPECT_TRUE(texts("coordinator", "view").back().ends_with("workers 0 2")) << all;
  EXPECT_EQ(texts("coordinator", "goodbye").front(), "1: left") << all;
  EXPECT_EQ(texts("coordinator", "ended").front(), "1: exit code 0") << all;
  EXPECT_EQ(texts("coordinator", "over").size(), 1u) << all;
  EXPECT_EQ(texts("coordinator", "ends"), Words{"told to"});
  EXPECT_EQ(texts("agent", "coordinator").size(), 2u);
  auto verdict = run({"verify", path("records")});
  EXPECT_EQ(verdict.status, 0) << verdict.out << verdict.err;
}

TEST_F(Records, TheLastStepOfAWorkerThatDiesAfterItHandedOverIsRecorded) {
  auto job =
      start_workers({"--name", "night", "--record", path("records"), "-n", "1", "--max", "2", "--max-restarts", "0"},
                    {"until=" + path("enough"), "samples=500", "hands_over=" + path("begun"), "train=1000000"});
  ASSERT_TRUE(view_becomes("night", {0})) << job.err();
  ASSERT_TRUE(step_becomes("night", 5));
  EXPECT_EQ(run({"resize", "night", "2"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {1})) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.out << seen.err;
  auto verdict = run({"verify", path("records")});
  EXPECT_EQ(verdict.status, 0) << verdict.out << verdict.err;
  auto first = events("worker-1").front();
  EXPECT_EQ(first.value("worker", -1), 0) << first;
  EXPECT_EQ(first.value("by", -1), 1) << first;
}

TEST_F(Records, AJobThatIsCutOffHasNoEnd) {
  auto job = start_training({"-n", "2", "--max-restarts", "0"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("night", 5));
  auto running = run({"verify", path("records")});
  EXPECT_EQ(running.status, 1);
  EXPECT_SAYS(running.out, "the job did not say that it finished or was stopped\n");
  running = run({"verify", path("records"), "--partial"});
  EXPECT_EQ(running.status, 0) << running.out;
  EXPECT_SAYS(running.out, "OK so far: ");
  for (std::uint64_t id : {0, 1}) kill(worker_of("night", id), SIGKILL);
  job.wait();
  EXPECT_EQ(run({"verify", path("records")}).status, 1);
}

TEST_F(Records, AStopIsAnEnd) {
  auto job = start_training({"-n", "2"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("night", 5));
  EXPECT_EQ(run({"stop", "night"}).status, 0);
  job.wait();
  auto verdict = run({"verify", path("records")});
  EXPECT_EQ(verdict.status, 0) << verdict.out << verdict.err;
  EXPECT_SAYS(verdict.out, "1 lineage, stopped\n");
}

TEST_F(Records, RefusalsAreWrittenDown) {
  auto job = start_workers({"-n", "1", "--name", "night", "--record", path("records"), "--max-restarts", "0"},
                           {"wrong=job", "join"});
  EXPECT_EQ(job.wait().status, 9);
  auto refusals = texts("coordinator", "refused");
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_TRUE(refusals[0].starts_with("0: process ")) << refusals[0];
  EXPECT_TRUE(refusals[0].ends_with(": this is job 'night', not 'another'")) << refusals[0];
}

TEST_F(Records, AFullDiskOrAFolderInTheWayDisturbsNobody) {
  std::filesystem::create_directories(path("records/agent.jsonl"));
  if (mknod(path("records/coordinator.jsonl").c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0)  // as /dev/full
    GTEST_SKIP() << "no device can be made here";
  auto job = start_training({"-n", "2"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  auto coordinator = coordinator_of("night");
  EXPECT_EQ(run({"resize", "night", "1"}).status, 0);
  ASSERT_TRUE(view_becomes("night", {0})) << job.err();
  EXPECT_EQ(coordinator_of("night"), coordinator);
  auto said = read_all(base() + "/night/coordinator.err");
  EXPECT_EQ(lines_in(said), 1u) << said;
  EXPECT_SAYS(said, "records are incomplete from here on");
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "agent.jsonl: Is a directory");
}

}  // namespace
}  // namespace pliant::cli_test
