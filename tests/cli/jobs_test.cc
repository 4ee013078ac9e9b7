// ps, status and stop.
#include <signal.h>
#include <unistd.h>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

using nlohmann::json;

class Jobs : public CliTest {
 protected:
  Command start_job(const std::string& name, const Words& flags = {}) {
    Words all = {"-n", "2", "--name", name};
    all.insert(all.end(), flags.begin(), flags.end());
    auto job = start_workers(all, {"join", "steps=3", "forever"});
    wait_for_workers(name, 2);
    EXPECT_TRUE(eventually([&] {
      auto status = read_json(name, "status.json");
      return status.is_object() && status["progress"].is_object() && status["progress"]["step"] == 3;
    })) << job.err();
    return job;
  }
};

TEST_F(Jobs, NothingRuns) {
  EXPECT_EQ(run({"ps"}).out, "no jobs are running\n");
  EXPECT_EQ(json::parse(run({"ps", "--json"}).out), json::array());
  for (const Words& words : {Words{"status"}, Words{"stop"}, Words{"status", "ghost"}, Words{"stop", "ghost"}}) {
    auto seen = run(words);
    EXPECT_EQ(seen.status, 1);
    EXPECT_EQ(lines_in(seen.err), 1u);
    EXPECT_NE(seen.err.find("no jobs are running"), std::string::npos) << seen.err;
  }
}

TEST_F(Jobs, PsListsThem) {
  auto first = start_job("alpha");
  auto second = start_job("beta");
  auto seen = run({"ps"});
  EXPECT_EQ(seen.status, 0);
  EXPECT_EQ(lines_in(seen.out), 3u) << seen.out;
  EXPECT_NE(seen.out.find("alpha"), std::string::npos);
  EXPECT_NE(seen.out.find("2/2"), std::string::npos);
  EXPECT_NE(seen.out.find("cli_worker join"), std::string::npos);
  auto all = json::parse(run({"ps", "--json"}).out);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].at("name"), "alpha");
  EXPECT_EQ(all[1].at("workers_alive"), 2);
  EXPECT_EQ(all[1].at("progress").at("step"), 3);
}

TEST_F(Jobs, StatusShowsTheOnlyOneOrTheNamedOne) {
  auto first = start_job("alpha");
  auto seen = run({"status"});
  EXPECT_EQ(seen.status, 0);
  for (const char* part : {"alpha", "running", "3 of 3", "0.2500", "2 of 2 run", "rank 1"})
    EXPECT_NE(seen.out.find(part), std::string::npos) << part << "\n" << seen.out;

  auto second = start_job("beta");
  auto which = run({"status"});
  EXPECT_EQ(which.status, 1);
  EXPECT_NE(which.err.find("alpha, beta"), std::string::npos) << which.err;
  auto named = json::parse(run({"status", "beta", "--json"}).out);
  EXPECT_EQ(named.at("name"), "beta");
  EXPECT_EQ(named.at("state"), "running");
  EXPECT_EQ(named.at("agent").at("pid"), second.pid());
  EXPECT_EQ(named.at("progress").at("loss"), 0.25);

  auto unknown = run({"status", "gamma"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_EQ(lines_in(unknown.err), 1u);
  EXPECT_NE(unknown.err.find("no job 'gamma'; these are running: alpha, beta"), std::string::npos) << unknown.err;
}

TEST_F(Jobs, StopWaitsUntilTheJobIsGone) {
  auto job = start_job("alpha");
  auto pids = wait_for_workers("alpha", 2);
  auto seen = run({"stop", "alpha"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(seen.out, "stopped alpha\n");
  EXPECT_TRUE(nothing_left());
  for (auto pid : pids) EXPECT_FALSE(process_runs(pid));
  EXPECT_EQ(job.wait().status, 143);
}

TEST_F(Jobs, StopForceKillsAtOnce) {
  auto job = start_workers({"-n", "2", "--name", "mule", "--grace", "1000"},
                           {"stubborn", "join", "touch=" + path("up"), "forever"});
  auto pids = wait_for_workers("mule", 2);
  ASSERT_TRUE(eventually([&] { return access(path("up").c_str(), F_OK) == 0; }));
  EXPECT_EQ(run({"stop", "--force"}).status, 0);
  for (auto pid : pids) EXPECT_FALSE(process_runs(pid));
  EXPECT_TRUE(nothing_left());
}

TEST_F(Jobs, StopForceCopesWithAStoppedAgent) {
  auto job = start_job("frozen");
  auto pids = wait_for_workers("frozen", 2);
  job.signal(SIGSTOP);
  EXPECT_EQ(run({"stop", "--force"}).status, 0);
  for (auto pid : pids) EXPECT_FALSE(process_runs(pid));
  EXPECT_TRUE(nothing_left());
}

}  // namespace
}  // namespace pliant::cli_test
