// A Slurm cluster of four nodes that exists for one test alone, with partitions that preempt each other.
#pragma once

#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "cli/harness.h"

namespace pliant::cli_test {

/// `Base` is CliTest, or made of it.
template <class Base>
class OnCluster : public Base {
 protected:
  static constexpr std::chrono::seconds kLong{90};

  void SetUp() override {
    Base::SetUp();
    for (const char* daemon : {"slurmctld", "slurmd", "munged"})
      if (this->program(daemon).empty()) GTEST_SKIP() << "Slurm is not installed";
    ASSERT_EQ(chmod(this->path("").c_str(), 0711), 0);  // munged wants all users to reach its socket
  }
  void TearDown() override {
    if (cluster_) {
      cluster_->signal(SIGTERM);
      cluster_->wait();
    }
    unsetenv("SLURM_CONF");
    Base::TearDown();
  }
  /// False: there is none to be had. `grace`: seconds between being told and being ended.
  bool start_cluster(const std::string& grace) {
    Words words = {
        PLIANT_SLURM_CLUSTER, this->path("slurm"), "4", "/bin/sh", "-c", "touch \"$1\"; exec sleep 100000", "sh",
        this->path("ready")};
    cluster_.emplace(words, Words{kPath, "GRACE=" + grace}, this->path("cluster"));
    auto is_up = [&] { return std::filesystem::exists(this->path("ready")); };
    EXPECT_TRUE(eventually([&] { return is_up() || cluster_->finished(); }, kLong));
    setenv("SLURM_CONF", conf().c_str(), 1);
    return is_up();
  }
  std::string conf() const { return this->path("slurm/slurm.conf"); }
  /// What a command writes.
  std::string shell(const std::string& text) {
    Command command({"/bin/sh", "-c", text}, {kPath, "SLURM_CONF=" + conf()}, this->path("shell"));
    auto seen = command.wait();
    EXPECT_EQ(seen.status, 0) << seen.err;
    return seen.out;
  }
  /// Takes two nodes until there is a file of that name.
  void take_two_nodes(const std::string& until) {
    shell(fmt::format("sbatch -p urgent -N 2 -o /dev/null --wrap 'while ! [ -e {} ]; do sleep 0.1; done'", until));
    ASSERT_TRUE(eventually([&] { return shell("squeue -h -p urgent -t RUNNING") != ""; }, kLong));
  }
  bool queue_is_empty() {
    return eventually([&] { return shell("squeue -h").empty(); }, kLong);
  }

  static constexpr char kPath[] = "PATH=/usr/local/bin:/usr/bin:/bin";
  std::optional<Command> cluster_;
};

#define START_CLUSTER(grace) \
  if (!start_cluster(grace)) GTEST_SKIP() << read_all(path("slurm/why"))

}  // namespace pliant::cli_test
