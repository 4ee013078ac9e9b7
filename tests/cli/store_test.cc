// A job on several hosts with a store outside of it, a real etcd: it decides who goes on where hosts cannot see each
// other, and which host has the coordinator. Training does not need it.
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "cli/harness.h"
#include "membership/etcd_server.h"

namespace pliant::cli_test {
namespace {

using etcd_test::EtcdServer;

class Stores : public CliTest {
 protected:
  void SetUp() override {
    if (!EtcdServer::is_installed()) GTEST_SKIP() << "etcd is not installed";
    CliTest::SetUp();
  }
  void TearDown() override {
    if (!EtcdServer::is_installed()) return;
    EXPECT_TRUE(nothing_left());
    CliTest::TearDown();
  }
  static Words script(const std::string& until) { return {"until=" + until, "samples=500", "train=1000000"}; }
  /// By its records.
  std::uint64_t steps_of_worker(std::uint64_t id) const {
    return lines_in(read_all(fmt::format("{}/worker-{}.jsonl", path("records"), id)));
  }
  bool goes_on(std::uint64_t worker) const {
    auto before = steps_of_worker(worker);
    return eventually([&] { return steps_of_worker(worker) > before + 20; });
  }
};

class StoreHere : public Stores {
 protected:
  void SetUp() override {
    Stores::SetUp();
    if (IsSkipped()) return;
    std::ofstream(path("here")) << "#!/bin/sh\nshift\nexec \"$@\"\n";  // every host is this one
    chmod(path("here").c_str(), 0700);
    etcd_.emplace();
  }
  Command start_training() {
    return start_workers({"--name", "far", "-H", "a:1,b:1", "--via", path("here") + " {host}", "--address", "127.0.0.1",
                          "--store", etcd_->url(), "--record", path("records"), "-x", "PLIANT_SILENCE_MS=60000"},
                         script(path("enough")));
  }
  std::optional<EtcdServer> etcd_;
};

TEST_F(StoreHere, AJobTrainsOnWithoutItsStore) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 1)) << job.err();  // nobody begins before the store knows of it
  etcd_->kill();
  ASSERT_TRUE(trains_on("far", 30)) << job.err();
  kill(worker_of("far", 1), SIGKILL);  // proven by its host: nobody needs to be asked
  ASSERT_TRUE(view_becomes("far", {0, 2})) << job.err();
  auto answer = run({"resize", "far", "1"});
  EXPECT_EQ(answer.status, 0) << answer.err;
  ASSERT_TRUE(view_becomes("far", {0})) << job.err();
  etcd_->restart();
  ASSERT_TRUE(trains_on("far", 30)) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(run({"verify", path("records")}).out, "OK: ");
}

TEST_F(StoreHere, AResizeThatTheStoreDoesNotKnowOfIsPromisedAsSuch) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 1)) << job.err();  // nobody begins before the store knows of it
  etcd_->freeze();
  auto answer = run({"resize", "far", "1"});
  EXPECT_SAYS(answer.out + answer.err, "the store does not answer, so that another coordinator would not know of this");
  etcd_->go_on();
  ASSERT_TRUE(view_becomes("far", {0})) << job.err();
  EXPECT_EQ(run({"resize", "far", "2"}).out.find("the store"), std::string::npos);
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(StoreHere, ANameCanBeUsedAgainAfterATotalLoss) {
  {
    auto lost = start_training();
    ASSERT_TRUE(view_becomes("far", {0, 1})) << lost.err();
    ASSERT_TRUE(step_becomes("far", 5)) << lost.err();
    auto all = processes_of("far");
    for (auto pid : all) kill(pid, SIGSTOP);
    lost.signal(SIGKILL);
    for (auto pid : all) kill(pid, SIGKILL);
    lost.wait();
    for (auto pid : all) ASSERT_TRUE(eventually([&] { return !process_runs(pid); }));
  }
  std::filesystem::remove_all(path("records"));
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 5)) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(StoreHere, ACoordinatorThatIsKilledIsReplacedWhereItWas) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 5)) << job.err();
  auto first = coordinator_of("far");
  kill(first, SIGKILL);
  ASSERT_TRUE(eventually([&] { return coordinator_of("far") > 0 && coordinator_of("far") != first; })) << job.err();
  EXPECT_EQ(run({"resize", "far", "1"}).status, 0);
  ASSERT_TRUE(view_becomes("far", {0})) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
}

TEST_F(StoreHere, CommandsFindTheCoordinatorWhereverItIs) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 5)) << job.err();
  auto place = [&] { return read_all(base() + "/far/coordinator.address"); };
  auto first = place();
  EXPECT_TRUE(first.starts_with("tcp:127.0.0.1:")) << first;
  auto stopped = coordinator_of("far");
  kill(stopped, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return place() != first; })) << job.err();
  auto answer = run({"resize", "far", "1"});
  EXPECT_SAYS(answer.out, "will have 1 worker") << answer.err;
  ASSERT_TRUE(view_becomes("far", {0})) << job.err();
  kill(stopped, SIGCONT);  // it sees that there is another one, and ends
  ASSERT_TRUE(eventually([&] { return !process_runs(stopped); }));
  EXPECT_EQ(run({"resize", "far+b", "2"}).status, 0);  // from any host of the job
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(run({"verify", path("records")}).out, "OK: ");
}

TEST_F(StoreHere, AHostThatWasLostFindsTheCoordinatorWhereverItIs) {
  auto job = start_training();
  ASSERT_TRUE(view_becomes("far", {0, 1})) << job.err();
  ASSERT_TRUE(step_becomes("far", 5)) << job.err();
  auto place = [&] { return read_all(base() + "/far/coordinator.address"); };
  auto first = place();
  auto stopped = coordinator_of("far");
  kill(stopped, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return place() != first; })) << job.err();
  kill(stopped, SIGKILL);
  auto lost = read_json("far+a");
  kill(lost["agent"]["pid"].get<pid_t>(), SIGKILL);
  kill(lost["workers"][0]["pid"].get<pid_t>(), SIGKILL);
  auto comes_back = [&] {
    auto now = read_json("far+a");
    return now.is_object() && now["agent"] != lost["agent"] && now["workers"].size() > 1;
  };
  EXPECT_TRUE(eventually(comes_back)) << job.err();
  auto seen = finish(job);
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_SAYS(run({"verify", path("records")}).out, "OK: ");
}

/// Two hosts at a switch, which is where this test itself and its etcd are.
class StoreOutside : public Stores {
 protected:
  void SetUp() override {
    Stores::SetUp();
    if (IsSkipped()) return;
    a_ = fmt::format("pliant{}a", getpid()), b_ = fmt::format("pliant{}b", getpid());
    if (unshare(CLONE_NEWNET) != 0) GTEST_SKIP() << "no network namespaces can be made here";
    std::string script =
        "ip link set lo up && ip link add switch type bridge && ip link set switch up && "
        "ip addr add 10.79.0.254/24 dev switch";
    int host = 0;
    for (const auto& name : {a_, b_})
      script += fmt::format(
          " && ip netns add {0} && ip link add to{1} type veth peer name eth0 netns {0} && ip link set to{1} master "
          "switch up && ip -n {0} link set lo up && ip -n {0} link set eth0 up && "
          "ip -n {0} addr add 10.79.0.{1}/24 dev eth0",
          name, ++host);
    if (!shell(script)) GTEST_SKIP() << "no network namespaces can be made here";
    etcd_.emplace("10.79.0.254");
  }
  void TearDown() override {
    for (const auto& name : {a_, b_}) {
      for (auto pid : processes_in(name)) kill(pid, SIGKILL);
      shell("ip netns del " + name + " 2>/dev/null");
    }
    Stores::TearDown();
  }
  static bool shell(const std::string& script) { return std::system(script.c_str()) == 0; }
  std::vector<pid_t> processes_in(const std::string& space) {
    shell(fmt::format("ip netns pids {} > {} 2>/dev/null", space, path("pids")));
    std::istringstream text(read_all(path("pids")));
    std::vector<pid_t> pids;
    for (pid_t pid = 0; text >> pid;) pids.push_back(pid);
    return pids;
  }
  std::optional<EtcdServer> etcd_;
  std::string a_, b_;
};

TEST_F(StoreOutside, AFewOfManyGoOnWhenTheHostWithTheCoordinatorIsLost) {
  auto job = start_workers_in(
      {"/usr/sbin/ip", "netns", "exec", a_},
      {"--name", "far", "-H", fmt::format("{}:2,{}:1", a_, b_), "--via", "ip netns exec {host}", "--address",
       "10.79.0.1", "--store", etcd_->url(), "--record", path("records"), "-x", "PLIANT_SILENCE_MS=2000"},
      script(path("enough")));
  ASSERT_TRUE(view_becomes("far", {0, 1, 2})) << job.err();
  ASSERT_TRUE(step_becomes("far", 20)) << job.err();
  auto left = read_json("far+" + b_)["workers"][0]["id"].get<std::uint64_t>();
  ASSERT_TRUE(shell("ip link set to1 down"));
  for (auto pid : processes_in(a_)) kill(pid, SIGKILL);
  job.wait();
  auto part = "far+" + b_;
  ASSERT_TRUE(view_becomes(part, {left})) << read_all(base() + "/" + part + "/coordinator.err");
  EXPECT_TRUE(goes_on(left));
  auto agent = read_json(part)["agent"]["pid"].get<pid_t>();
  let_it_end();
  EXPECT_TRUE(eventually([&] { return !process_runs(agent); }));
  EXPECT_SAYS(run({"verify", path("records")}).out, "OK: ");
  namespace fs = std::filesystem;
  fs::last_write_time(base() + "/far+" + a_, fs::file_time_type::clock::now() - std::chrono::hours(2));
  run({"ps"});  // sweeps what the lost host left on this disk, when nobody comes for it any more
}

}  // namespace
}  // namespace pliant::cli_test
