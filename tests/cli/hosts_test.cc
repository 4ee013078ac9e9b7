// A job on several hosts: as far as its workers can tell, which share memory only with those of their host; and, where
// the machine allows it, in network namespaces of their own.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cli/cable.h"
#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

using Ids = std::vector<std::uint64_t>;

class Hosts : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    std::ofstream(path("here")) << "#!/bin/sh\nshift\nexec \"$@\"\n";  // every host is this one
    chmod(path("here").c_str(), 0700);
  }
  void TearDown() override {
    EXPECT_TRUE(nothing_left());
    CliTest::TearDown();
  }
  /// What leads to hosts, and patience: a crowded machine is no reason to lose anybody.
  Words flags_with(const Words& more) const {
    Words all = {"--name",    "far",       "--via", path("here") + " {host}",
                 "--address", "127.0.0.1", "-x",    "PLIANT_SILENCE_MS=60000"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// A job that trains until finish().
  Command start_on(const Words& flags) {
    auto all = flags_with(flags);
    all.insert(all.end(), {"--record", path("records")});
    return start_workers(all, endless({"samples=500"}));
  }
  /// Workers 0 and 1 on host a, 2 and 3 on host b, most likely.
  Command start_training(const Words& more = {}) {
    Words flags = {"-H", "a:2,b:2"};
    flags.insert(flags.end(), more.begin(), more.end());
    return start_on(flags);
  }
  std::string verdict() { return run({"verify", path("records")}).out; }

  pid_t agent_of(const std::string& host) const {
    auto record = read_json("far+" + host);
    return record.is_object() ? record["agent"]["pid"].get<pid_t>() : 0;
  }
  /// By the coordinator's word; sorted.
  Ids members_on(const std::string& host) const {
    Ids ids;
    auto note = read_json("far", "coordinator.json");
    if (!note.is_object()) return ids;
    for (const auto& member : note["view"]["members"])
      if (member["host"] == host) ids.push_back(member["id"]);
    std::ranges::sort(ids);
    return ids;
  }
  std::string endpoint_of(std::uint64_t id) const {
    auto note = read_json("far", "coordinator.json");
    for (const auto& member : note["view"]["members"])
      if (member["id"] == id) return member["endpoint"];
    return "";
  }
  /// The agent of host b is killed while a job that is started with these flags ends.
  void expect_led_to_again(Words flags) {
    flags.insert(flags.end(), {"-H", "a:1,b:1", "--grace", "1000"});
    auto job = start_workers(flags, {"stubborn", "forever"});
    ASSERT_TRUE(eventually([&] { return worker_of("far", 0) > 0 && worker_of("far", 1) > 0; })) << job.err();
    auto workers = {worker_of("far", 0), worker_of("far", 1)};
    job.signal(SIGINT);
    ASSERT_TRUE(eventually([&] { return read_json("far", "coordinator.json").value("stopping", 0) == 1; }));
    auto agent = agent_of("b");
    kill(agent, SIGKILL);
    EXPECT_TRUE(eventually([&] { return agent_of("b") != agent; }));
    job.signal(SIGINT);
    EXPECT_EQ(job.wait().status, 130);
    for (auto pid : workers) EXPECT_TRUE(eventually([&] { return !process_runs(pid); }));
  }
  std::string ticket() const { return base() + "/far/ticket"; }
};

TEST_F(Hosts, AJobTrainsAndItsRecordsAreProved) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  ASSERT_TRUE(step_becomes("far", 30));
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, AKilledWorkerIsReplacedWhereThereIsRoom) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  ASSERT_TRUE(step_becomes("far", 10));
  auto killed = members_on("b").at(0);
  kill(worker_of("far", killed), SIGKILL);
  auto replaced = [&] {
    auto there = members_on("b");  // looked at once: it may change
    return there.size() == 2 && there[1] == 4;
  };
  ASSERT_TRUE(eventually(replaced)) << job.err();
  ASSERT_TRUE(trains_on("far", 20));
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, fmt::format("host b: worker {} was killed by signal 9; 3 workers go on", killed));
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, AWholeHostMayDieAndComeBack) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  ASSERT_TRUE(step_becomes("far", 10));
  auto there = members_on("b");
  kill(agent_of("b"), SIGKILL);
  for (auto id : there) kill(worker_of("far", id), SIGKILL);
  ASSERT_TRUE(eventually([&] { return members_on("b").empty(); })) << job.err();
  ASSERT_TRUE(eventually([&] { return members_on("b") == (Ids{4, 5}); })) << job.err();
  ASSERT_TRUE(trains_on("far", 20));
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "host b: its agent has ended (killed by signal 9");
  EXPECT_SAYS(verdict(), "OK: ");
}

/// Until then nobody can prove that the majority is dead.
TEST_F(Hosts, AHostThatTookTheMajorityWithItIsLedToAgainAtOnce) {
  auto job = start_on({"-H", "a:2,b:1"});
  ASSERT_TRUE(view_becomes("far", {0, 1, 2})) << job.err();
  ASSERT_TRUE(trains_on("far", 5));
  auto survivor = members_on("b").at(0);
  auto there = members_on("a");
  kill(agent_of("a"), SIGKILL);
  for (auto id : there) kill(worker_of("far", id), SIGKILL);
  ASSERT_TRUE(view_becomes("far", {survivor, 3, 4})) << job.err();
  std::vector<double> led;
  std::istringstream lines(read_all(path("records/agent.jsonl")));
  for (std::string line; std::getline(lines, line);)
    if (auto event = nlohmann::json::parse(line, nullptr, false);
        event.value("event", "") == "host" && event.value("text", "").starts_with("a: "))
      led.push_back(event["t"]);
  ASSERT_EQ(led.size(), 3u) << read_all(path("records/agent.jsonl"));  // begun, ended, begun
  EXPECT_LT(led[2] - led[1], 0.9);
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, WithoutItsAgentAHostGoesOnAndGetsAnother) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  auto first = agent_of("a");
  auto there = members_on("a");
  kill(first, SIGKILL);
  ASSERT_TRUE(eventually([&] { return agent_of("a") != first; })) << job.err();
  EXPECT_EQ(members_on("a"), there);
  kill(worker_of("far", there[0]), SIGKILL);
  ASSERT_TRUE(eventually([&] { return members_on("a") == (Ids{there[1], 4}); })) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, AnAgentSaysInWhichViewAWorkerWasThatDiedWithTheAgentBefore) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  ASSERT_TRUE(trains_on("far", 5));
  auto epoch = read_json("far", "coordinator.json")["view"]["epoch"].get<int>();
  auto victim = members_on("b").at(0);
  auto agent = agent_of("b");
  auto worker = worker_of("far", victim);
  kill(agent, SIGSTOP);  // it sees nothing more
  kill(worker, SIGKILL);
  ASSERT_TRUE(eventually([&] { return !process_runs(worker); }));
  kill(agent, SIGKILL);
  auto told = [&] {
    std::istringstream lines(read_all(path("records/coordinator.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (auto event = nlohmann::json::parse(line, nullptr, false);
          event.value("event", "") == "last view" && event.value("worker", 0U) == victim)
        return event.value("text", "") == fmt::format("epoch {}", epoch);
    return false;
  };
  EXPECT_TRUE(eventually(told)) << read_all(path("records/coordinator.jsonl"));
  ASSERT_TRUE(eventually([&] { return members_on("b").size() == 2 && members_on("b")[1] == 4; })) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, AnotherMachineJoinsWithTheTicket) {
  auto job = start_on({"-H", "a:2"});
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  auto more = start({"run", "--join", ticket(), "--host", "c", "--slots", "2"});
  ASSERT_TRUE(eventually([&] { return agent_of("c") == more.pid(); })) << more.err();
  EXPECT_EQ(run({"resize", "far", "4"}).status, 0);
  ASSERT_TRUE(eventually([&] { return members_on("c") == (Ids{2, 3}); })) << job.err() << more.err();
  ASSERT_TRUE(trains_on("far", 20));
  EXPECT_SAYS(run({"status", "far"}).out, "ticket     " + ticket());
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(more.wait().status, 0) << more.err();
  EXPECT_SAYS(more.out(), "[2] ");
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, WhoJoinsMayLeave) {
  auto job = start_on({"-H", "a:2"});
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  auto more = start({"run", "--join", ticket(), "--host", "c", "--slots", "1"});
  EXPECT_EQ(run({"resize", "far", "3"}).status, 0);
  ASSERT_TRUE(view_becomes("far", {0, 1, 2})) << job.err() << more.err();
  more.signal(SIGTERM);
  EXPECT_EQ(more.wait().status, 143) << more.err();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  EXPECT_EQ(finish(job).status, 0);
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, AScriptSaysWhichHostsThereAre) {
  std::ofstream(path("hosts")) << "a:2\n";
  auto job = start_on({"--host-discovery-script", "cat " + path("hosts")});
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  std::ofstream(path("hosts")) << "a:2\nb:1\n";
  ASSERT_TRUE(eventually([&] { return members_on("b") == Ids{2}; })) << job.err();
  ASSERT_TRUE(trains_on("far", 20));
  std::ofstream(path("hosts")) << "b:1\n";
  ASSERT_TRUE(view_becomes("far", {2})) << job.err();
  std::ofstream(path("hosts")) << "b:many\n";  // changes nothing
  EXPECT_TRUE(job.comes_to_say("'many' is not a number of slots"));
  ASSERT_TRUE(trains_on("far", 20));
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.err, "host a is not there any more");
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, StoppingReachesEverybody) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  auto all = processes_of("far");
  ASSERT_EQ(all.size(), 7U);
  job.signal(SIGINT);
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 130) << seen.err;
  for (auto pid : all) EXPECT_TRUE(eventually([&] { return !process_runs(pid); })) << pid;
}

/// The coordinator that was to tell the agents dies with the word; and the launcher's signals do not reach them.
TEST_F(Hosts, AStopByForceIsToldAgainByForce) {
  std::ofstream(path("here")) << "#!/bin/sh\nshift\nexec setsid -w \"$@\"\n";
  auto job =
      start_workers(flags_with({"-H", "a:1,b:1", "--grace", "1000"}), {"stubborn", "touch=" + path("set"), "forever"});
  ASSERT_TRUE(eventually([&] { return worker_of("far", 0) > 0 && worker_of("far", 1) > 0; })) << job.err();
  ASSERT_TRUE(eventually([&] { return access(path("set").c_str(), F_OK) == 0; }));
  auto workers = {worker_of("far", 0), worker_of("far", 1)};
  job.signal(SIGINT);
  ASSERT_TRUE(job.comes_to_say("stopping job"));
  ASSERT_TRUE(eventually([&] { return read_json("far", "coordinator.json").value("stopping", 0) == 1; }));
  auto coordinator = coordinator_of("far");
  kill(coordinator, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return state_of(coordinator) == 'T'; }));
  job.signal(SIGINT);
  usleep(200'000);  // for the launcher to write it
  kill(coordinator, SIGKILL);
  EXPECT_EQ(job.wait().status, 130);
  for (auto pid : workers) EXPECT_TRUE(eventually([&] { return !process_runs(pid); })) << pid;
}

/// What leads to hosts says in different ways that an agent was killed: as a shell, or srun, does, or as ssh.
TEST_F(Hosts, WhereAnAgentWasKilledWhileTheJobEndsIsLedToAgain) {
  for (int code : {137, 255}) {
    std::ofstream(path("here")) << "#!/bin/sh\nshift\n\"$@\" 2>/dev/null\ncode=$?\n[ $code = 137 ] && exit " << code
                                << "\nexit $code\n";
    SCOPED_TRACE(code);
    expect_led_to_again(flags_with({}));
  }
}

TEST_F(Hosts, AJobWithoutItsHeadCanBeStopped) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  auto all = processes_of("far");
  job.signal(SIGKILL);
  job.wait();
  auto seen = run({"stop", "far"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  for (auto pid : all) EXPECT_TRUE(eventually([&] { return !process_runs(pid); })) << pid;
}

TEST_F(Hosts, AProgramThatFailsOnOneHostFailsTheJob) {
  auto job = start_workers(flags_with({"-H", "a:1,b:1"}), {"exit=7"});
  auto seen = job.wait();
  EXPECT_NE(seen.status, 0);
  EXPECT_SAYS(seen.err, "exit code 7");
  EXPECT_SAYS(seen.err, "job 'far' failed");
}

TEST_F(Hosts, AHostThatCannotBeReachedIsSaid) {
  std::ofstream(path("here")) << "#!/bin/sh\ntest $1 = a || { echo no such host >&2; exit 255; }\nshift\nexec \"$@\"\n";
  auto seen = start_on({"-H", "a:1,b:1"}).wait();
  EXPECT_EQ(seen.status, 1) << seen.err;
  EXPECT_SAYS(seen.err, "host b: its agent has ended (exit code 255); trying again");
  EXPECT_SAYS(seen.err, "job 'far' failed: host b: exit code 255\n    no such host");
}

TEST_F(Hosts, ThisMachineNeedsNothingThatLeadsToIt) {
  auto job = start_workers({"--name", "far", "-H", "localhost:2"}, {"samples=100", "train=5"});
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Hosts, PortsAndAddressesAreTheUsers) {
  auto job = start_workers({"--name", "far", "-H", "a:1,b:1", "--via", path("here") + " {host}", "--address", "::1",
                            "--ports", "23110-23119", "--record", path("records")},
                           endless({"samples=500"}));
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 10));
  for (std::uint64_t id : {0, 1}) EXPECT_EQ(endpoint_of(id).substr(0, 10), "[::1]:2311") << endpoint_of(id);
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, AnotherCoordinatorServesThemAll) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  auto first = coordinator_of("far");
  kill(first, SIGKILL);
  ASSERT_TRUE(eventually([&] { return coordinator_of("far") > 0 && coordinator_of("far") != first; }));
  EXPECT_EQ(run({"resize", "far", "3"}).status, 0);
  ASSERT_TRUE(view_becomes("far", {0, 1, 2})) << job.err() << read_json("far", "coordinator.json");
  EXPECT_EQ(run({"resize", "far", "4"}).status, 0);
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(verdict(), "OK: ");
}

/// Half of the workers, without the lowest id, may go on only with proof, which nobody but the host's agent has.
TEST_F(Hosts, ADeathThatACoordinatorDiedWithIsToldToTheNext) {
  auto job = start_on({"-H", "a:1,b:1"});
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(trains_on("far", 5));
  auto first = coordinator_of("far");
  auto agents_log = path("records/agent-" + std::string(members_on("a") == Ids{0} ? "a" : "b") + ".jsonl");
  kill(first, SIGSTOP);  // it takes what it is told, and does not read it
  kill(worker_of("far", 0), SIGKILL);
  ASSERT_TRUE(eventually([&] { return read_all(agents_log).find("\"ended\"") != std::string::npos; })) << job.err();
  kill(first, SIGKILL);
  ASSERT_TRUE(view_becomes("far", {1, 2})) << job.err() << read_json("far", "coordinator.json");
  ASSERT_TRUE(trains_on("far", 20));
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(verdict(), "OK: ");
}

/// What the next agent tells of the dead before it is proof; it does not use up the job's restarts again.
TEST_F(Hosts, ADeathIsCountedOnceWhoeverTellsOfIt) {
  auto job = start_training({"--max-restarts", "0"});
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  ASSERT_TRUE(trains_on("far", 5));
  auto restarts = [&] { return read_json("far", "coordinator.json").value("restarts", 9); };
  auto dead = members_on("b").at(0);
  kill(worker_of("far", dead), SIGKILL);
  ASSERT_TRUE(eventually([&] { return members_on("b").size() == 1; })) << job.err();  // nobody takes its place
  ASSERT_TRUE(eventually([&] { return restarts() == -1; }));
  auto was_heard = [&] {  // the agent has noted that
    auto record = read_json("far+b");
    for (const auto& worker : record["workers"])
      if (worker["id"] == dead) return worker["told"].get<bool>();
    return false;
  };
  ASSERT_TRUE(eventually(was_heard));
  auto coordinator = coordinator_of("far");
  auto agent = agent_of("b");
  kill(agent, SIGKILL);
  kill(coordinator, SIGKILL);
  ASSERT_TRUE(eventually([&] { return coordinator_of("far") > 0 && coordinator_of("far") != coordinator; }));
  ASSERT_TRUE(eventually([&] { return agent_of("b") > 0 && agent_of("b") != agent; })) << job.err();
  auto log = [&] { return read_all(path("records/coordinator.jsonl")); };
  ASSERT_TRUE(eventually([&] { return log().find("it ended while there was no agent") != std::string::npos; }));
  EXPECT_NE(run({"resize", "far", "0"}).status, 0);  // the coordinator's note is written before it answers
  EXPECT_EQ(restarts(), -1);
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, WithoutItsHeadAJobGoesOn) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  job.signal(SIGKILL);
  job.wait();
  auto again = start({"run", "--attach", "far"});
  ASSERT_TRUE(eventually([&] { return read_json("far")["agent"]["pid"] == again.pid(); }));
  auto there = members_on("a");
  kill(worker_of("far", there[0]), SIGKILL);
  ASSERT_TRUE(eventually([&] { return members_on("a") == (Ids{there[1], 4}); })) << again.err();
  auto seen = finish(again);
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(Hosts, TheSecretIsNobodyElses) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  struct stat info {};
  ASSERT_EQ(stat((base() + "/far/secret").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  auto secret = read_all(base() + "/far/secret").substr(0, 64);
  ASSERT_EQ(secret.size(), 64U);
  for (auto pid : processes_of("far"))
    for (const char* file : {"cmdline", "environ"})
      EXPECT_EQ(read_all(fmt::format("/proc/{}/{}", pid, file)).find(secret), std::string::npos) << pid << file;
  EXPECT_EQ(finish(job).status, 0);
}

TEST_F(Hosts, MistakesAreOneLine) {
  auto says = [&](const Words& flags, const std::string& what) {
    auto seen = run_workers(flags, {"train=1"});
    EXPECT_EQ(seen.status, 2) << seen.err;
    EXPECT_SAYS(seen.err, what);
    EXPECT_EQ(lines_in(seen.err), 1U) << seen.err;
  };
  says({"-H", "a:2"}, "--via says how to start something on a host");
  says({"--via", "x"}, "--via needs hosts");
  says({"-H", "a:2", "--hostfile", "x", "--via", "x"}, "choose one");
  says({"-H", "a;b:2", "--via", "x"}, "is not a host's name");
  says({"--host", "b"}, "--host and --slots go with --join");
  says({"--ports", "9-3"}, "is not a port, or a range");
  says({"-H", "a:2,a:1", "--via", "x"}, "host 'a' is named twice");
  says({"-H", "a:", "--via", "x"}, "is not a number of slots");
  says({"-H", "a:0", "--via", "x"}, "'0' is not a number of slots");
  says({"-H", "a:2,b:1", "-n", "4", "--via", "x"}, "4 workers do not fit into 3 slots");
  says({"--hostfile", path("none"), "--via", "x"}, "cannot be read");
  auto seen = run_workers({"-H", "no-such-host:2", "--via", "x"}, {"train=1"});
  EXPECT_NE(seen.status, 0);
  EXPECT_SAYS(seen.err, "--address says where this machine is reached");
  seen = run({"run", "--join", path("none")});
  EXPECT_EQ(seen.status, 1);
  EXPECT_SAYS(seen.err, "No such file");
  std::ofstream(path("open")) << "pliant ticket\n";
  chmod(path("open").c_str(), 0644);
  EXPECT_SAYS(run({"run", "--join", path("open")}).err, "is open to other users");
  chmod(path("open").c_str(), 0600);
  EXPECT_SAYS(run({"run", "--join", path("open")}).err, "the ticket names no coordinator");
}

TEST_F(Hosts, AHostfileIsReadAsPeopleWriteThem) {
  std::ofstream(path("hosts")) << "# two of them\na slots=2\n\nb:1   # and this\n";
  auto job = start_on({"--hostfile", path("hosts")});
  ASSERT_TRUE(view_becomes("far", {0, 1, 2})) << job.err();
  EXPECT_EQ(members_on("a").size(), 2U);
  EXPECT_EQ(members_on("b").size(), 1U);
  EXPECT_EQ(finish(job).status, 0);
}

/// With a cable between them; host a is also where the head is.
class Namespaces : public Hosts {
 protected:
  void SetUp() override {
    Hosts::SetUp();
    if (!cable_.works()) GTEST_SKIP() << "no network namespaces can be made here";
  }
  /// What `ip` does to host b, which has one worker of three, and what that one says.
  void is_cut_off_and_comes_back(const std::string& cut, const std::string& mend, const std::string& said) {
    auto job = start_workers_in(
        {"/usr/sbin/ip", "netns", "exec", cable_.a},
        {"--name", "far", "-H", fmt::format("{}:2,{}:1", cable_.a, cable_.b), "--via", "ip netns exec {host}",
         "--address", "10.78.0.1", "--record", path("records"), "--max-restarts", "0", "-x", "PLIANT_SILENCE_MS=2000"},
        endless({"samples=500"}));
    ASSERT_TRUE(view_becomes("far", {0, 1, 2})) << job.err();
    ASSERT_TRUE(step_becomes("far", 20));
    auto majority = members_on(cable_.a);
    ASSERT_EQ(std::system(fmt::format("ip -n {} {}", cable_.b, cut).c_str()), 0);
    ASSERT_TRUE(view_becomes("far", majority)) << job.err();
    ASSERT_TRUE(trains_on("far", 20));
    EXPECT_TRUE(job.comes_to_say(said)) << job.err();
    ASSERT_EQ(std::system(fmt::format("ip -n {} {}", cable_.b, mend).c_str()), 0);
    ASSERT_TRUE(view_becomes("far", {0, 1, 2})) << job.err();
    const std::string back = "the other workers went on without this one: asking to be taken in again";
    EXPECT_TRUE(job.comes_to_say(back)) << job.err();
    ASSERT_TRUE(trains_on("far", 20));
    auto seen = finish(job);
    EXPECT_EQ(seen.status, 0) << seen.err;
    EXPECT_SAYS(verdict(), "OK: ");
  }
  Cable cable_;
};

TEST_F(Namespaces, ACableThatIsCutLeavesTheMajorityTrainingAndTheRestComesBack) {
  is_cut_off_and_comes_back("link set eth0 down", "link set eth0 up", "warning: 2 of 3 workers are out of reach");
}

TEST_F(Namespaces, ACableThatIsCutInOneDirectionIsAsGoodAsCut) {
  // It may hear from the others what they have decided.
  is_cut_off_and_comes_back("route add blackhole 10.78.0.1", "route del blackhole 10.78.0.1", "");
}

/// The commands of a page, as they are written there: the first block of code after a heading.
std::string commands_under(const std::string& heading, const std::string& page) {
  auto text = read_all(page);
  auto begin = text.find("```sh\n", text.find("\n## " + heading + "\n"));
  if (begin == std::string::npos) return "false # nothing under '" + heading + "'";
  begin += 6;
  return text.substr(begin, text.find("```", begin) - begin);
}

TEST_F(CliTest, TheManualsTrialOnOneMachineWorksAsItIsWritten) {
  if (std::system("ip netns add a 2>/dev/null") != 0) GTEST_SKIP() << "no network namespaces can be made here";
  ASSERT_EQ(std::system("ip netns del a"), 0);
  std::ofstream(path("train")) << "#!/bin/sh\nexec " << PLIANT_CLI_WORKER << " samples=500 train=60\n";
  chmod(path("train").c_str(), 0700);
  std::ofstream(path("trial")) << "set -e\ncd " << path("") << "\n"
                               << commands_under("Try it on one machine", PLIANT_MANUAL);
  auto seen = start_script(path("trial")).wait();
  EXPECT_EQ(seen.status, 0) << seen.out << seen.err;
  EXPECT_SAYS(seen.out, "OK: 60 steps");
  EXPECT_TRUE(nothing_left());
  if (seen.status != 0) (void)!std::system("ip netns del a 2>/dev/null; ip netns del b 2>/dev/null");
}

// ---- over ssh, which passes nothing on but what is said ----

class Ssh : public Hosts {
 protected:
  void SetUp() override {
    Hosts::SetUp();
    if (access("/usr/sbin/sshd", X_OK) != 0 || access("/usr/bin/ssh", X_OK) != 0) GTEST_SKIP() << "no sshd here";
    auto script = fmt::format(
        "set -e; cd {}; mkdir -p /run/sshd; ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f "
        "key; cp key.pub keys; chmod 600 keys",
        path(""));
    ASSERT_EQ(std::system(script.c_str()), 0);
    for (port_ = 22000 + getpid() % 10000; port_ < 33000; port_ += 7)
      if (serve()) return;
    FAIL() << "no sshd can be started";
  }
  void TearDown() override {
    if (auto pid = daemon()) kill(pid, SIGTERM);
    Hosts::TearDown();
  }
  bool serve() {
    std::ofstream(path("config")) << "ListenAddress 127.0.0.1:" << port_ << "\nHostKey " << path("host")
                                  << "\nAuthorizedKeysFile " << path("keys") << "\nPidFile " << path("sshd.pid")
                                  << "\nStrictModes no\nPermitRootLogin yes\nUsePAM no\nSetEnv PLIANT_DIR=" << base()
                                  << "\n";
    if (std::system(fmt::format("/usr/sbin/sshd -f {} 2>/dev/null", path("config")).c_str()) != 0) return false;
    return eventually([&] { return daemon() > 0; });
  }
  pid_t daemon() const { return static_cast<pid_t>(std::atoi(read_all(path("sshd.pid")).c_str())); }
  Words over_ssh() const {
    auto via = fmt::format(
        "/usr/bin/ssh -p {} -i {} -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
        "-o LogLevel=ERROR -o HostName=127.0.0.1 {{host}}",
        port_, path("key"));
    return {"--name", "far", "--via", via, "--address", "127.0.0.1"};
  }
  int port_ = 0;
};

TEST_F(Ssh, WhereAnAgentWasKilledWhileTheJobEndsIsLedToAgain) { expect_led_to_again(over_ssh()); }

TEST_F(Ssh, HostsAreLedToAndServed) {
  auto flags = over_ssh();
  flags.insert(flags.end(), {"-H", "a:1,b:1", "--record", path("records"), "-x", "PLIANT_SILENCE_MS=60000"});
  auto job = start_workers(flags, endless({"samples=500"}));
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 10));
  kill(worker_of("far", 1), SIGKILL);
  ASSERT_TRUE(view_becomes("far", {0, 2})) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(seen.out, "[0] ");
  EXPECT_SAYS(verdict(), "OK: ");
}

}  // namespace
}  // namespace pliant::cli_test
