// `pliant chaos` on real jobs: short storms, what it refuses, and that it leaves nothing stopped.
#include <fcntl.h>
#include <fmt/format.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/fd.h"
#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

using nlohmann::json;

class Chaos : public CliTest {
 protected:
  Command start_training(int workers, const Words& more = {}) {
    Words flags = {"-n", std::to_string(workers), "--name", "night"};
    flags.insert(flags.end(), more.begin(), more.end());
    auto job = start_workers(flags, endless({"samples=100000"}));
    EXPECT_TRUE(step_becomes("night", 5)) << job.err();
    return job;
  }
  /// `pliant chaos night --yes FLAGS`.
  Command start_chaos(const Words& flags) {
    Words words = {"chaos", "night", "--yes", "--log", path("chaos.log")};
    words.insert(words.end(), flags.begin(), flags.end());
    return start(words);
  }
  bool anybody_stopped() const {
    return std::ranges::any_of(all_processes(), [](pid_t pid) { return state_of(pid) == 'T'; });
  }
  std::vector<pid_t> all_processes() const {
    auto all = processes_of("night");
    auto job = read_json("night");
    if (job.is_object()) all.push_back(job["agent"]["pid"]);
    return all;
  }
};

TEST_F(Chaos, AJobGoesOnThroughAShortStormAndItsRecordsProveIt) {
  auto job = start_training(3, {"--record", path("records"), "--max-restarts", "1000"});
  auto storm = start_chaos({"--events", "10", "--every", "300ms", "--kinds", "kill,term,resize,sigstop", "--seed", "3",
                            "--pause", "300ms", "--min", "2", "--max", "4", "--json", path("report.json"), "--wait"});
  ASSERT_TRUE(eventually([&] { return storm.out().find("#9 ") != std::string::npos || storm.finished(); }));
  auto ended = finish(job);
  EXPECT_EQ(ended.status, 0) << ended.err;
  auto seen = storm.wait();
  EXPECT_EQ(seen.status, 0) << seen.out << seen.err;
  EXPECT_SAYS(seen.out, "job night has ended");
  EXPECT_SAYS(seen.out, "verify: OK");
  auto report = json::parse(read_all(path("report.json")));
  EXPECT_EQ(report["good"], true);
  EXPECT_EQ(report["exact_gaps"], true);
  EXPECT_EQ(report["events"].size(), 10u);
  EXPECT_GE(report["all"]["done"].get<int>(), 8) << report;
  EXPECT_GT(report["all"]["worst_ms"].get<double>(), 0);
}

TEST_F(Chaos, TheSameSeedMakesTheSameSchedule) {
  auto job = start_training(3);
  std::vector<Words> kinds;
  for (int round = 0; round < 2; ++round) {
    auto seen = start_chaos({"--events", "6", "--every", "50ms", "--kinds", "resize,sigstop", "--seed", "11", "--pause",
                             "60ms", "--json", path("report.json")})
                    .wait();
    EXPECT_EQ(seen.status, 0) << seen.out << seen.err;
    EXPECT_SAYS(seen.out, "job night goes on");
    EXPECT_SAYS(seen.out, "no records: nothing to verify");
    Words own;
    auto report = json::parse(read_all(path("report.json")));
    for (const auto& event : report["events"]) own.push_back(event["kind"]);
    kinds.push_back(own);
  }
  EXPECT_EQ(kinds[0].size(), 6u);
  EXPECT_EQ(kinds[0], kinds[1]);
  EXPECT_EQ(finish(job).status, 0);
}

TEST_F(Chaos, AnAgentAndACoordinatorThatAreKilledAreReplaced) {
  auto job = start_training(2, {"--record", path("records")});
  auto agent = read_json("night")["agent"]["pid"].get<pid_t>();
  auto coordinator = coordinator_of("night");
  auto storm =
      start_chaos({"--events", "1", "--every", "10ms", "--kinds", "agent", "--json", path("report.json"), "--wait"});
  EXPECT_EQ(job.wait().status, 128 + SIGKILL);
  ASSERT_TRUE(eventually([&] {
    auto now = read_json("night");
    return now.is_object() && now["agent"]["pid"] != agent && process_runs(now["agent"]["pid"]);
  }));
  auto other = start_chaos({"--events", "1", "--every", "10ms", "--kinds", "coordinator"}).wait();
  EXPECT_EQ(other.status, 0) << other.out << other.err;
  EXPECT_TRUE(eventually([&] { return coordinator_of("night") != coordinator; }));
  EXPECT_TRUE(trains_on("night", 20));
  let_it_end();
  auto seen = storm.wait();
  EXPECT_EQ(seen.status, 0) << seen.out << seen.err << read_all(path("chaos.log"));
  EXPECT_SAYS(seen.out, "its agent: exit code 0");
  EXPECT_SAYS(seen.out, "verify: OK");
}

TEST_F(Chaos, AJobThatLosesEverybodyHasNotSurvived) {
  auto job = start_training(2, {"--record", path("records"), "--max-restarts", "0"});
  auto seen = start_chaos({"--events", "1", "--every", "10ms", "--kinds", "everybody", "--wait"}).wait();
  EXPECT_SAYS(seen.out, "everybody");
  EXPECT_SAYS(seen.out, "job night has ended");
  EXPECT_SAYS(seen.out, "its last worker: ");  // "lost", or "killed" if its agent was the first to know
  EXPECT_EQ(seen.status, 1) << seen.out;
  EXPECT_NE(job.wait().status, 0);
}

TEST_F(Chaos, CtrlCLeavesNothingStopped) {
  auto job = start_training(3);
  auto storm = start_chaos({"--events", "50", "--every", "20ms", "--kinds", "sigstop,coordinator-stop,agent-stop",
                            "--pause", "1h", "--seed", "5"});
  ASSERT_TRUE(eventually([&] { return anybody_stopped(); })) << storm.out() << storm.err();
  storm.signal(SIGINT);
  auto seen = storm.wait();
  EXPECT_SAYS(seen.out, "KIND");
  EXPECT_TRUE(eventually([&] { return !anybody_stopped(); }));
  EXPECT_EQ(finish(job).status, 0);
}

TEST_F(Chaos, WhatItStoppedGoesOnIfItIsKilledItself) {
  auto job = start_training(2);
  auto storm = start_chaos({"--events", "50", "--every", "20ms", "--kinds", "sigstop", "--pause", "1h", "--seed", "6"});
  ASSERT_TRUE(eventually([&] { return anybody_stopped(); })) << storm.out() << storm.err();
  storm.signal(SIGKILL);
  EXPECT_EQ(storm.wait().status, 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return !anybody_stopped(); }));
  EXPECT_EQ(finish(job).status, 0);
}

TEST_F(Chaos, RefusesBeforeItDoesAnything) {
  auto nowhere = run({"chaos", "night", "--yes"});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_SAYS(nowhere.err, "no job 'night': no jobs are running");

  auto job = start_training(2);
  auto refused = [&](const Words& flags, const std::string& why) {
    auto seen = start_chaos(flags).wait();
    EXPECT_EQ(seen.status, 2) << why;
    EXPECT_EQ(lines_in(seen.err), 1u) << seen.err;
    EXPECT_SAYS(seen.err, why);
    EXPECT_EQ(seen.out, "");
  };
  refused({"--kinds", "kill,bite"}, "'bite' is not a kind of fault; there are default, kill, kill2");
  refused({"--kinds", "kill,cut"}, "'cut' needs --link as root, or --cut-with, --heal-with and --host");
  refused({"--kinds", "kill,host"}, "'host' needs a job on several hosts");
  refused({"--kinds", "kill,store"}, "'store' needs --store-pid");
  refused({"--kinds", "store", "--store-pid", "999999999"}, "store");
  refused({"--min", "4", "--max", "2"}, "--min 4 is more than --max 2");
  refused({"--every", "5"}, "'5' is not a time like 500ms, 2s, 5m or 1h");
  refused({"--every", "1s", "--rate", "2"}, "excludes");
  refused({"--link", "h0"}, "'h0' is not HOST=[NETNS/]DEVICE[@RATE]");

  auto silent = run({"chaos", "night"});
  EXPECT_EQ(silent.status, 2);
  EXPECT_SAYS(silent.err, "--yes is needed to hurt job 'night' without a terminal to ask on");
  EXPECT_EQ(read_json("night")["workers"].size(), 2u);
  EXPECT_EQ(finish(job).status, 0);
}

TEST_F(Chaos, AsksOnATerminal) {
  auto job = start_training(2);
  int master = -1;
  int slave = -1;
  ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  Fd ours(master), theirs(slave);
  fcntl(master, F_SETFD, FD_CLOEXEC);
  fcntl(master, F_SETFL, O_NONBLOCK);
  auto script = path("ask.sh");
  // The harness gives commands no input.
  std::ofstream(script) << fmt::format("exec pliant chaos night --kinds kill --events 1 <{}\n", ptsname(master));
  auto asking = start_script(script);
  ASSERT_TRUE(eventually([&] { return asking.out().find("Go on? [y/N] ") != std::string::npos; })) << asking.err();
  EXPECT_SAYS(asking.out(), "job 'night' will suffer: kill");
  ASSERT_EQ(write(master, "n\n", 2), 2);
  EXPECT_EQ(asking.wait().status, 2);
  EXPECT_EQ(read_json("night")["workers"].size(), 2u);
  EXPECT_EQ(finish(job).status, 0);
}

TEST_F(Chaos, HostsAreLostAndTheirLinksCutByTheUsersCommands) {
  std::ofstream(path("here")) << "#!/bin/sh\nshift\nexec \"$@\"\n";  // every host is this one
  chmod(path("here").c_str(), 0700);
  auto job = start_training(4, {"-H", "a:2,b:2", "--via", path("here") + " {host}", "--address", "127.0.0.1", "-x",
                                "PLIANT_SILENCE_MS=60000", "--max-restarts", "1000", "--record", path("records")});
  auto cut =
      start_chaos({"--events", "2", "--every", "10ms", "--kinds", "cut", "--pause", "50ms", "--host", "a", "--cut-with",
                   "echo cut {host} >>" + path("links"), "--heal-with", "echo healed {host} >>" + path("links")})
          .wait();
  EXPECT_EQ(cut.status, 0) << cut.out << cut.err;
  EXPECT_EQ(read_all(path("links")), "cut a\nhealed a\ncut a\nhealed a\n");

  auto lost =
      start_chaos({"--events", "1", "--every", "10ms", "--kinds", "host", "--json", path("report.json")}).wait();
  EXPECT_EQ(lost.status, 0) << lost.out << lost.err;
  auto report = json::parse(read_all(path("report.json")));
  ASSERT_EQ(report["all"]["done"], 1) << report;
  auto host = report["events"][0]["what"].get<std::string>().substr(0, 1);
  EXPECT_TRUE(host == "a" || host == "b") << report;
  EXPECT_TRUE(trains_on("night", 20));
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Chaos, AFrozenWorkerGoesOn) {
  auto job = start_training(2);
  auto seen = start_chaos({"--events", "3", "--every", "10ms", "--kinds", "freeze", "--pause", "100ms"}).wait();
  if (seen.status == 2) {
    EXPECT_SAYS(seen.err, "'freeze' needs root and a cgroup v2 tree: ");
    EXPECT_EQ(finish(job).status, 0);
    GTEST_SKIP() << seen.err;
  }
  EXPECT_EQ(seen.status, 0) << seen.out << seen.err;
  EXPECT_SAYS(seen.out, "freeze");
  EXPECT_TRUE(trains_on("night", 10));
  EXPECT_EQ(finish(job).status, 0);
}

TEST_F(Chaos, AStoreIsStoppedAndKilledAndStartedAgain) {
  auto job = start_training(2);
  auto script = path("store.sh");
  std::ofstream(script) << fmt::format("sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; echo >>{1}\n", path("store.pid"),
                                       path("starts"));
  ASSERT_EQ(start_script(script).wait().status, 0);
  auto first = std::stoi(read_all(path("store.pid")));
  auto stopped = start_chaos({"--events", "1", "--every", "10ms", "--kinds", "store", "--store-pid", path("store.pid"),
                              "--pause", "60ms"})
                     .wait();
  EXPECT_EQ(stopped.status, 0) << stopped.out << stopped.err;
  EXPECT_TRUE(eventually([&] { return state_of(first) == 'S'; }));
  auto killed = start_chaos({"--events", "1", "--every", "10ms", "--kinds", "store", "--store-pid", path("store.pid"),
                             "--store-restart", "sh " + script, "--pause", "60ms"})
                    .wait();
  EXPECT_EQ(killed.status, 0) << killed.out << killed.err;
  EXPECT_TRUE(eventually([&] { return lines_in(read_all(path("starts"))) == 2; }));
  EXPECT_FALSE(process_runs(first));
  kill(std::stoi(read_all(path("store.pid"))), SIGKILL);
  EXPECT_EQ(finish(job).status, 0);
}

TEST_F(Chaos, DoesNotTouchWhatOthersOwnOrMayWrite) {
  auto job = start_training(2);
  auto dir = base() + "/night";
  std::filesystem::permissions(dir, std::filesystem::perms(0777));
  auto open_to_all = start_chaos({"--events", "1"}).wait();
  EXPECT_EQ(open_to_all.status, 2);
  EXPECT_SAYS(open_to_all.err, "other users can write to ");
  std::filesystem::permissions(dir, std::filesystem::perms(0700));
  if (geteuid() == 0) {
    ASSERT_EQ(chown(dir.c_str(), 65534, 65534), 0);
    auto foreign = start_chaos({"--events", "1"}).wait();
    EXPECT_EQ(foreign.status, 2);
    EXPECT_SAYS(foreign.err, "belongs to another user");
    ASSERT_EQ(chown(dir.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(read_json("night")["workers"].size(), 2u);
  EXPECT_EQ(finish(job).status, 0);
}

}  // namespace
}  // namespace pliant::cli_test
