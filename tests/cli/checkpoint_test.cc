// --checkpoint and --resume: jobs that are stopped, killed and begun again.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Checkpoints : public CliTest {
 protected:
  void TearDown() override {
    EXPECT_TRUE(eventually([&] { return nothing_left(); }));
    CliTest::TearDown();
  }
  /// 600 steps of ten samples each: ten epochs.
  Command start_training(const Words& flags, const Words& script = {}) {
    Words all = {"--name", "night"};
    all.insert(all.end(), flags.begin(), flags.end());
    Words work = script;
    work.insert(work.end(), {"samples=600", "train=600"});
    return start_workers(all, work);
  }
  /// The names of complete checkpoints, in order.
  Words saved() const {
    Words names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(path("saved"), ignored))
      if (entry.path().filename().string().starts_with("step-")) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  std::string state_of(const std::string& checkpoint) const {
    return path("saved/" + checkpoint + "/state.safetensors");
  }
  json verdict() {
    auto seen = run({"verify", "--json", path("records")});
    return json::parse(seen.out, nullptr, false);
  }
  /// Three, of a job that was interrupted.
  void make_checkpoints() {
    auto job = start_training({"-n", "2", "--checkpoint", path("saved"), "--every", "20", "--keep", "3"});
    ASSERT_TRUE(eventually([&] { return saved().size() >= 3; })) << job.err();
    job.signal(SIGINT);
    EXPECT_EQ(job.wait().status, 130);
    ASSERT_EQ(saved().size(), 3u);
  }
};

/// All who finished it have made so many steps, here or before the checkpoint.
void expect_done(const Outcome& seen, int workers, int steps = 600) {
  EXPECT_EQ(seen.status, 0) << seen.err;
  for (int id = 0; id < workers; ++id)
    EXPECT_SAYS(seen.out, fmt::format("[{}] done with {}\n", id, 1 + 0.5 * steps)) << "worker " << id;
}

void alter_the_last_byte(const std::string& file) {
  auto text = read_all(file);
  text.back() = static_cast<char>(text.back() ^ 1);
  std::ofstream(file, std::ios::binary) << text;
}

// ---- written when a job is stopped ----

TEST_F(Checkpoints, AnInterruptWritesOneBeforeTheWorkersLeave) {
  auto job = start_training({"-n", "2", "--checkpoint", path("saved"), "--every", "1h"});
  ASSERT_TRUE(step_becomes("night", 20)) << job.err();
  EXPECT_EQ(saved(), Words{});
  job.signal(SIGINT);
  EXPECT_EQ(job.wait().status, 130);
  ASSERT_EQ(saved().size(), 1u) << job.err();
  EXPECT_GE(saved()[0], "step-000000000020");
}

TEST_F(Checkpoints, AStopWritesOne) {
  auto job = start_training({"-n", "2", "--checkpoint", path("saved"), "--every", "1h"});
  ASSERT_TRUE(step_becomes("night", 20)) << job.err();
  EXPECT_EQ(run({"stop", "night"}).status, 0);
  EXPECT_EQ(job.wait().status, 143);
  EXPECT_EQ(saved().size(), 1u) << job.err();
}

TEST_F(Checkpoints, AStopWritesOneWithoutAnAgentToo) {
  auto job = start_training({"-n", "2", "--checkpoint", path("saved"), "--every", "1h"});
  ASSERT_TRUE(step_becomes("night", 20)) << job.err();
  job.signal(SIGKILL);
  job.wait();
  EXPECT_EQ(run({"stop", "night"}).status, 0);
  EXPECT_EQ(saved().size(), 1u);
}

TEST_F(Checkpoints, TheLastOneIsWrittenWhileAnotherIsOnItsWay) {
  for (const char* every : {"4", "7"}) {  // that of step 8 itself, or the one before
    fs::remove_all(path("saved"));
    auto seen =
        run_workers({"-n", "1", "--checkpoint", path("saved"), "--every", every}, {"weights=4000000", "train=8"});
    EXPECT_EQ(seen.status, 0) << seen.err;
    ASSERT_FALSE(saved().empty());
    EXPECT_EQ(saved().back(), "step-000000000008");
  }
}

TEST_F(Checkpoints, TheLastOneIsWrittenEvenIfTheFirstWorkerDiesInTheLastStep) {
  auto seen = run_workers({"-n", "2", "--checkpoint", path("saved"), "--every", "1h"},
                          {"only=0", "crash=49", "all", "train=50"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(saved(), Words{"step-000000000050"});
  EXPECT_SAYS(seen.err, "is done: step 50/50");
}

// ---- going on ----

TEST_F(Checkpoints, AResumedJobGoesOnExactlyThereOnAnyNumberOfWorkers) {
  auto first = start_training({"-n", "2", "--checkpoint", path("saved"), "--every", "1h", "--record", path("records")});
  ASSERT_TRUE(step_becomes("night", 100)) << first.err();
  first.signal(SIGINT);
  EXPECT_EQ(first.wait().status, 130);
  ASSERT_EQ(saved().size(), 1u);
  auto steps = std::stoi(saved()[0].substr(5));
  EXPECT_LT(steps, 600);
  auto before = verdict();
  EXPECT_EQ(before["ok"], true) << before;
  EXPECT_EQ(before["steps"], steps) << "the checkpoint has all steps that were made";

  auto second = start_training({"-n", "3", "--resume", path("saved"), "--record", path("records")}).wait();
  expect_done(second, 3);
  EXPECT_SAYS(second.err, fmt::format("at step {}\n", steps));
  EXPECT_SAYS(second.out, fmt::format("[0] step {}: 0 of 3\n", steps));
  auto after = verdict();
  EXPECT_EQ(after["ok"], true) << after;
  EXPECT_EQ(after["lineages"], 2);
  EXPECT_EQ(after["steps"], 600);
  EXPECT_EQ(after["epochs"], 10);
  EXPECT_EQ(after["samples"], 6000);
}

TEST_F(Checkpoints, AJobThatWasKilledAltogetherIsResumed) {
  auto first = start_training({"-n", "3", "--checkpoint", path("saved"), "--every", "20", "--record", path("records")});
  ASSERT_TRUE(eventually([&] { return saved().size() >= 2; })) << first.err();
  auto pids = processes_of("night");
  first.signal(SIGKILL);
  for (std::size_t i = 1; i < pids.size(); ++i) kill(pids[i], SIGKILL);
  first.wait();
  ASSERT_TRUE(eventually([&] { return nothing_left(); })) << "its coordinator ends by itself";

  auto second = start_training({"-n", "2", "--resume", path("saved"), "--record", path("records")}).wait();
  expect_done(second, 2);
  auto after = verdict();
  EXPECT_EQ(after["ok"], true) << after;
  EXPECT_EQ(after["lineages"], 2);
  EXPECT_EQ(after["steps"], 600);
  EXPECT_EQ(after["samples"], 6000);
}

TEST_F(Checkpoints, ABrokenOneIsPassedOver) {
  make_checkpoints();
  auto names = saved();
  fs::resize_file(state_of(names[2]), 100);
  alter_the_last_byte(state_of(names[1]));
  auto seen = start_training({"-n", "2", "--resume", path("saved")}).wait();
  expect_done(seen, 2);
  for (const auto& [name, what] : {std::pair(names[2], "truncated"), std::pair(names[1], "altered")}) {
    auto line = fmt::format("warning: checkpoint passed over: {}: {}", state_of(name), what);
    EXPECT_SAYS(seen.err, line);
    EXPECT_EQ(seen.err.find(line), seen.err.rfind(line)) << "said once: " << seen.err;
  }
  EXPECT_SAYS(seen.err, fmt::format("resumed from {}", path("saved/" + names[0])));
}

TEST_F(Checkpoints, WithoutAGoodOneNothingIsStarted) {
  make_checkpoints();
  for (const auto& name : saved()) fs::resize_file(state_of(name), 100);
  auto newest = saved().back();
  for (const auto& [dir, why] :
       {std::pair(path("saved"), ": no good checkpoint (3 broken); the newest: " + state_of(newest)),
        std::pair(path("nowhere"), std::string(": no checkpoint"))}) {
    auto seen = start_training({"-n", "2", "--resume", dir}).wait();
    EXPECT_EQ(seen.status, 1);
    EXPECT_EQ(seen.out, "");
    EXPECT_EQ(lines_in(seen.err), 1u) << seen.err;
    EXPECT_SAYS(seen.err, "pliant: --resume: " + dir + why);
    EXPECT_TRUE(nothing_left());
  }
}

TEST_F(Checkpoints, ThoseOfAnotherJobAreNotMixedWithNewOnes) {
  make_checkpoints();
  auto before = saved();
  auto seen = start_training({"-n", "2", "--checkpoint", path("saved")}).wait();
  EXPECT_NE(seen.status, 0);
  EXPECT_EQ(lines_in(seen.err), 1u) << seen.err;
  EXPECT_SAYS(seen.err, "--checkpoint " + path("saved") + ": there are checkpoints already, up to step ");
  EXPECT_SAYS(seen.err, "go on from them with '--resume " + path("saved") + "'");
  EXPECT_EQ(saved(), before);
  EXPECT_TRUE(nothing_left());
}

TEST_F(Checkpoints, AnotherModelIsRefusedInOneLine) {
  make_checkpoints();
  auto seen = start_training({"-n", "2", "--resume", path("saved")}, {"weights=32"}).wait();
  EXPECT_EQ(seen.status, 1);
  EXPECT_EQ(seen.out.find("step "), std::string::npos) << "nobody trains: " << seen.out;
  EXPECT_SAYS(seen.err, "'weights/values' is f32[16], but f32[32] in this job");
}

// ---- what must not disturb a job ----

TEST_F(Checkpoints, AFullDiskIsAWarning) {
  Words in_little_room = {
      "/usr/bin/unshare",
      "-m",
      "/bin/sh",
      "-c",
      "mount -t tmpfs -o size=64k,mode=0700 none \"$0\" || exit 77; \"$@\"; status=$?; ls -A \"$0\"; exit $status",
      path("saved")};
  fs::create_directories(path("saved"));
  auto job =
      start_workers_in(in_little_room, {"-n", "2", "--name", "night", "--checkpoint", path("saved"), "--every", "20"},
                       {"weights=100000", "samples=600", "train=100"});
  auto seen = job.wait();
  if (seen.status == 77 || seen.err.find("unshare") != std::string::npos)
    GTEST_SKIP() << "no file system can be mounted here: " << seen.err;
  expect_done(seen, 2, 100);
  EXPECT_SAYS(seen.err, "warning: no checkpoint of step 20: cannot write");
  EXPECT_SAYS(seen.err, "No space left on device");
  EXPECT_EQ(seen.out.find("step-0"), std::string::npos) << "none took its name";
  EXPECT_EQ(seen.out.find(".tmp-"), std::string::npos) << "nothing is left of those that failed";
}

TEST_F(Checkpoints, ANewcomerWithOtherStateIsRefusedAndTheJobGoesOn) {
  auto job = start_training({"-n", "2", "--max-restarts", "2"},
                            {"until=" + path("enough"), "only=2", "weights=32", "only=3", "weights=32", "only=4",
                             "weights=32", "only=5", "weights=32", "all"});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("night", 5));
  EXPECT_EQ(run({"resize", "night", "3"}).status, 0);
  ASSERT_TRUE(job.comes_to_say("worker 4 ended")) << job.err();
  auto then = step_of("night");
  EXPECT_TRUE(step_becomes("night", then + 50)) << job.err();
  EXPECT_EQ(read_json("night")["workers"].size(), 5u) << "two replacements, then no more";
  EXPECT_TRUE(view_becomes("night", {0, 1}));
  auto seen = job.wait();
  expect_done(seen, 2);
  EXPECT_SAYS(seen.err, "the job refused this worker: worker 2 shares other state than worker ");
  EXPECT_SAYS(seen.err, "pliant: worker 2 ended with exit code 1; 2 workers go on\n");
}

}  // namespace
}  // namespace pliant::cli_test
