// A job on several hosts: as far as its workers can tell, which share memory only with those of their host; and, where
// the machine allows it, in network namespaces of their own.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

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
  Words on_two_hosts(const Words& more = {}) const {
    Words all = {
        "--name",      "far", "--via", path("here") + " {host}", "--address", "127.0.0.1",
        "--interface", "lo",  "-x",    "PLIANT_SILENCE_MS=60000"};  // a crowded machine is no reason to lose anybody
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// A job of workers 0 and 1 on host a, 2 and 3 on host b, that trains until finish().
  Command start_training(const Words& more = {}) {
    auto flags = on_two_hosts({"-H", "a:2,b:2", "--record", path("records")});
    flags.insert(flags.end(), more.begin(), more.end());
    return start_workers(flags, {"until=" + path("enough"), "samples=500", "train=1000000"});
  }
  Outcome finish(Command& job) {
    std::ofstream(path("enough")) << "";
    return job.wait();
  }
  std::string verdict() { return run({"verify", path("records")}).out; }
};

TEST_F(Hosts, AJobTrainsAndItsRecordsAreProved) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  ASSERT_TRUE(step_becomes("far", 30));
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, AKilledWorkerIsReplacedOnAHostWithRoom) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  ASSERT_TRUE(step_becomes("far", 10));
  kill(worker_of("far", 2), SIGKILL);
  ASSERT_TRUE(view_becomes("far", {0, 1, 3, 4})) << job.err();
  EXPECT_EQ(read_json("far")["workers"][4]["host"], "b");
  ASSERT_TRUE(step_becomes("far", step_of("far") + 20));
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(verdict(), "OK: ");
}

TEST_F(Hosts, AWholeHostMayDie) {
  auto job = start_training({"--max-restarts", "0"});
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  ASSERT_TRUE(step_becomes("far", 10));
  for (std::uint64_t id : {2, 3}) kill(worker_of("far", id), SIGKILL);
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", step_of("far") + 20));
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

TEST_F(Hosts, WithoutItsAgentAJobGoesOn) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1, 2, 3})) << job.err();
  job.signal(SIGKILL);
  job.wait();
  auto again = start({"run", "--attach", "far"});
  ASSERT_TRUE(eventually([&] { return read_json("far")["agent"]["pid"] == again.pid(); }));
  kill(worker_of("far", 0), SIGKILL);
  ASSERT_TRUE(view_becomes("far", {1, 2, 3, 4})) << again.err();
  EXPECT_EQ(read_json("far")["workers"][4]["host"], "a");
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
  says({"-H", "a:2,a:1", "--via", "x"}, "host 'a' is named twice");
  says({"-H", "a:", "--via", "x"}, "is not a number of slots");
  says({"-H", "a:0", "--via", "x"}, "'0' is not a number of slots");
  says({"-H", "a:2,b:1", "-n", "4", "--via", "x"}, "4 workers do not fit into 3 slots");
  says({"--hostfile", path("none"), "--via", "x"}, "cannot be read");
  auto seen = run_workers({"-H", "a:2", "--via", "x"}, {"train=1"});
  EXPECT_NE(seen.status, 0);
  EXPECT_SAYS(seen.err, "--address says where this machine is reached");
}

TEST_F(Hosts, AHostfileIsReadAsPeopleWriteThem) {
  std::ofstream(path("hosts")) << "# two of them\na slots=2\n\nb:1   # and this\n";
  auto job = start_workers(on_two_hosts({"--hostfile", path("hosts")}), {"until=" + path("enough"), "train=1000000"});
  ASSERT_TRUE(view_becomes("far", {0, 1, 2})) << job.err();
  EXPECT_EQ(read_json("far")["workers"][2]["host"], "b");
  EXPECT_EQ(finish(job).status, 0);
}

/// Two namespaces with a cable between them; host a is also where the agent runs.
class Namespaces : public Hosts {
 protected:
  void SetUp() override {
    Hosts::SetUp();
    a_ = fmt::format("pliant{}a", getpid()), b_ = fmt::format("pliant{}b", getpid());
    auto script = fmt::format(
        "ip netns add {0} && ip netns add {1} && ip -n {0} link add eth0 type veth peer name eth0 netns {1} && "
        "for n in {0} {1}; do ip -n $n link set lo up && ip -n $n link set eth0 up || exit 1; done && "
        "ip -n {0} addr add 10.78.0.1/24 dev eth0 && ip -n {1} addr add 10.78.0.2/24 dev eth0",
        a_, b_);
    if (std::system((script + " 2>/dev/null").c_str()) != 0) GTEST_SKIP() << "no network namespaces can be made here";
  }
  void TearDown() override {
    for (const auto& name : {a_, b_})
      [[maybe_unused]] auto status = std::system(fmt::format("ip netns del {} 2>/dev/null", name).c_str());
    Hosts::TearDown();
  }
  std::string a_, b_;
};

TEST_F(Namespaces, ACableThatIsCutLeavesTheMajorityTrainingAndTheRestWaiting) {
  auto job = start_workers_in({"/usr/sbin/ip", "netns", "exec", a_},
                              {"--name", "far", "-H", fmt::format("{}:2,{}:1", a_, b_), "--via", "ip netns exec {host}",
                               "--address", "10.78.0.1", "--interface", "eth0", "--record", path("records"),
                               "--max-restarts", "0", "-x", "PLIANT_SILENCE_MS=2000"},
                              {"until=" + path("enough"), "samples=500", "train=1000000"});
  ASSERT_TRUE(view_becomes("far", {0, 1, 2})) << job.err();
  ASSERT_TRUE(step_becomes("far", 20));
  ASSERT_EQ(std::system(fmt::format("ip -n {} link set eth0 down", b_).c_str()), 0);
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", step_of("far") + 20));
  EXPECT_TRUE(eventually([&] {
    return job.err().find("warning: 2 of 3 workers are out of reach") != std::string::npos;
  })) << job.err();
  kill(worker_of("far", 2), SIGKILL);
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(verdict(), "OK: ");
}

}  // namespace
}  // namespace pliant::cli_test
