// Jobs on several hosts with a store outside of them, a real etcd.
#pragma once

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "cli/harness.h"
#include "membership/etcd_server.h"

namespace pliant::cli_test {

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

/// Every host is this one.
class StoreHere : public Stores {
 protected:
  void SetUp() override {
    Stores::SetUp();
    if (IsSkipped()) return;
    std::ofstream(path("here")) << "#!/bin/sh\nshift\nexec \"$@\"\n";
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

}  // namespace pliant::cli_test
