// Other users of the machine: what they prepared is refused, and what is this user's stays hidden from them.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uid_t kOther = 54321;  // has no processes and no home

mode_t mode_of(const std::string& path) {
  struct stat seen {};
  EXPECT_EQ(lstat(path.c_str(), &seen), 0) << path;
  return seen.st_mode & 07777;
}

uid_t owner_of(const std::string& path) {
  struct stat seen {};
  return stat(path.c_str(), &seen) == 0 ? seen.st_uid : static_cast<uid_t>(-1);
}

class Users : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    bystander_.emplace(Words{"/bin/sleep", "1000"}, Words{}, path("bystander"));
  }
  void expect_refusal(const Words& words, const std::string& part) {
    auto seen = run(words);
    EXPECT_NE(seen.status, 0) << words[0];
    EXPECT_EQ(lines_in(seen.err), 1U) << words[0] << ": " << seen.err;
    EXPECT_SAYS(seen.err, part);
  }
  /// Whose job.json says that a program is to be run, and names a process that lives.
  void plant_job(const std::string& name) {
    auto real = start_workers({"-n", "1", "--name", "real"}, {"join", "forever"});
    auto pid = wait_for_workers("real", 1)[0];
    auto record = read_json("real");
    run({"stop", "--force", "real"});
    EXPECT_FALSE(process_runs(pid));
    record["name"] = name;
    record["program"] = "/usr/bin/touch";
    record["argv"] = {"touch", path("was run")};
    record["workers"][0]["pid"] = bystander_->pid();
    record["workers"][0]["start"] = start_of(bystander_->pid());
    fs::create_directory(base() + "/" + name);
    std::ofstream(base() + "/" + name + "/job.json") << record;
  }
  static std::uint64_t start_of(pid_t pid) {
    auto stat = read_all(fmt::format("/proc/{}/stat", pid));
    std::istringstream fields(stat.substr(stat.rfind(')') + 1));
    std::string field;
    for (int number = 3; number <= 22; ++number) fields >> field;
    return std::stoull(field);
  }
  void expect_all_refuse(const std::string& part) {
    for (const Words& words :
         {Words{"run", "--attach", "night"}, Words{"stop", "night"}, Words{"stop", "--force"}, Words{"status", "night"},
          Words{"resize", "night", "2"}, Words{"chaos", "night", "--yes"}})
      expect_refusal(words, part);
    EXPECT_FALSE(fs::exists(path("was run")));
    EXPECT_TRUE(process_runs(bystander_->pid()));
  }

  std::optional<Command> bystander_;
};

// ---- planted jobs ----

TEST_F(Users, ABaseThatOthersCanWriteToIsRefusedByEveryCommand) {
  fs::create_directory(base());
  plant_job("night");
  ASSERT_EQ(chmod(base().c_str(), 0777), 0);
  expect_all_refuse("other users can write to " + base());
  for (const Words& words : {Words{"ps"}, Words{"run", "-n", "1", "true"}})
    expect_refusal(words, "other users can write to " + base() + " (mode 0777): 'chmod go-w");
}

TEST_F(Users, AJobThatAnotherUserPlantedIsRefusedByEveryCommand) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  fs::create_directory(base());
  plant_job("night");
  ASSERT_EQ(chown((base() + "/night").c_str(), kOther, kOther), 0);
  expect_all_refuse(
      fmt::format("'night' is not a job of yours: {}/night belongs to another user ({})", base(), kOther));
  auto seen = run({"ps"});
  EXPECT_EQ(seen.out, "no jobs are running\n");
  EXPECT_SAYS(seen.err, "belongs to another user");
  EXPECT_EQ(lines_in(seen.err), 1U);
  expect_refusal({"run", "-n", "1", "--name", "night", "true"}, "belongs to another user");
  EXPECT_SAYS(run({"doctor"}).out, "foreign job");
}

TEST_F(Users, AJobsDirectoryThatOthersCanWriteToIsRefusedByEveryCommand) {
  fs::create_directory(base());
  plant_job("night");
  ASSERT_EQ(chmod((base() + "/night").c_str(), 0770), 0);
  expect_all_refuse("other users can write to " + base() + "/night (mode 0770)");
}

// ---- folders that others prepared ----

TEST_F(Users, FoldersThatOthersPreparedAreNotWrittenTo) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  std::ofstream(path("victim")) << "mine\n";
  fs::create_directory(path("prepared"));
  for (const char* name : {"agent.jsonl", "worker-0.jsonl", "lineage", "rank-0.out"})
    fs::create_symlink(path("victim"), path("prepared/") + name);
  ASSERT_EQ(chmod(path("prepared").c_str(), 0777), 0);
  for (auto [owner, why] :
       {std::pair<uid_t, const char*>(0, "other users can write to "), {kOther, "belongs to another user"}}) {
    ASSERT_EQ(chown(path("prepared").c_str(), owner, owner), 0);
    for (const char* flag : {"--record", "--checkpoint", "--output-dir"})
      expect_refusal({"run", "-n", "1", flag, path("prepared"), "echo", "hello"}, why);
  }
  EXPECT_EQ(read_all(path("victim")), "mine\n");
  EXPECT_TRUE(nothing_left());
}

TEST_F(Users, OutputIsNotWrittenThroughLinks) {
  std::ofstream(path("victim")) << "mine\n";
  fs::create_directory(path("out"));
  fs::create_symlink(path("victim"), path("out/rank-0.out"));
  expect_refusal({"run", "-n", "1", "--output-dir", path("out"), "echo", "hello"}, "rank-0.out is a link");
  EXPECT_EQ(read_all(path("victim")), "mine\n");
}

TEST_F(Users, RecordsAndCheckpointsAreTheUsersAloneUnlessAskedOtherwise) {
  auto make = [&](const std::string& to, const Words& more) {
    Words flags = {"-n", "1", "--record", path(to + "/r"), "--checkpoint", path(to + "/c"), "--every", "5"};
    flags.insert(flags.end(), more.begin(), more.end());
    auto seen = run_workers(flags, {"samples=60", "train=20"});
    EXPECT_EQ(seen.status, 0) << seen.err;
    std::map<std::string, std::set<mode_t>> modes;
    for (const auto& entry : fs::recursive_directory_iterator(path(to)))
      modes[entry.is_directory() ? "folder" : "file"].insert(mode_of(entry.path()));
    return modes;
  };
  auto before = umask(0);
  auto hidden = make("hidden", {});
  EXPECT_EQ(hidden["folder"], std::set<mode_t>{0700});
  EXPECT_EQ(hidden["file"], std::set<mode_t>{0600});
  umask(077);
  auto shown = make("shown", {"--file-mode", "0644"});
  umask(before);
  EXPECT_EQ(shown["folder"], std::set<mode_t>{0755});
  EXPECT_EQ(shown["file"], std::set<mode_t>{0644});
  expect_refusal({"run", "--file-mode", "0666", "true"}, "--file-mode: '0666' is none of");
}

// ---- what others can read ----

/// The words of every process that has this text among them.
Words command_lines_with(const std::string& text) {
  Words found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    auto words = read_all(entry.path() / "cmdline");
    if (words.find(text) != std::string::npos) found.push_back(words);
  }
  return found;
}

TEST_F(Users, ValuesOfVariablesAreInNoCommandLineNorLog) {
  auto typed = fmt::format("typed{}", getpid()), taken = fmt::format("taken{}", getpid());
  auto job = start_workers({"-n", "2", "-H", "localhost:2", "--name", "night", "-x", "ONE=" + typed,
                            "--env=TWO=" + typed, "-xTHREE=" + typed, "-x", "TAKEN"},
                           endless(), {"TAKEN=" + taken});
  ASSERT_TRUE(view_becomes("night", {0, 1})) << job.err();
  EXPECT_EQ(command_lines_with(typed), Words{});
  EXPECT_EQ(command_lines_with(taken), Words{});
  auto environment = read_all(fmt::format("/proc/{}/environ", worker_of("night", 0)));
  for (const auto& entry : {"ONE=" + typed, "TWO=" + typed, "THREE=" + typed, "TAKEN=" + taken})
    EXPECT_SAYS(environment, entry);
  for (const auto& entry : fs::recursive_directory_iterator(base()))
    EXPECT_TRUE(!entry.is_regular_file() || mode_of(entry.path()) == 0600U) << entry.path();
  EXPECT_EQ(run({"status", "night", "--json"}).out.find(typed), std::string::npos);
  let_it_end();
  auto seen = job.wait();
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ((seen.out + seen.err).find(typed), std::string::npos);
}

TEST_F(Users, AVariableWithoutAValueIsTakenFromTheEnvironment) {
  auto seen = start({"run", "-n", "1", "--output", "raw", "-x", "EMPTY", "-x", "FULL", "/bin/sh", "-c",
                     "echo \"<$EMPTY><$FULL>\""},
                    {"EMPTY=", "FULL=a=b c"})
                  .wait();
  EXPECT_EQ(seen.out, "<><a=b c>\n") << seen.err;
  seen = run({"run", "-n", "1", "--output", "raw", "/bin/sh", "-c", "echo $A$B"}, {"PLIANT_ENV=A;B=2", "A=1"});
  EXPECT_EQ(seen.out, "12\n") << seen.err;
  expect_refusal({"run", "-n", "1", "-x", "NOT_THERE", "true"}, "NOT_THERE is not set here");
}

// ---- a user who is not root ----

class Unprivileged : public Users {
 protected:
  void SetUp() override {
    Users::SetUp();
    if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    if (program("setpriv").empty()) GTEST_SKIP() << "setpriv is not installed";
    ASSERT_EQ(chmod(path("").c_str(), 0711), 0);
    fs::create_directory(path("home"));
    ASSERT_EQ(chown(path("home").c_str(), kOther, kOther), 0);
  }
  void TearDown() override {
    if (geteuid() == 0 && !program("setpriv").empty()) run_as_other({"stop", "--force", "night"});
    fs::remove_all(temporary_);
    Users::TearDown();
  }
  Words as_other() const {
    return {program("setpriv"),
            fmt::format("--reuid={}", kOther),
            fmt::format("--regid={}", kOther),
            "--clear-groups",
            "/usr/bin/env",
            "PLIANT_DIR=",
            "HOME=" + path("home")};
  }
  Outcome run_as_other(const Words& words) { return start_in(as_other(), words).wait(); }
  json status() {
    auto text = run_as_other({"status", "night", "--json"}).out;
    return json::parse(text, nullptr, false);
  }
  const std::string temporary_ = fmt::format("/tmp/pliant-{}", kOther);
};

TEST_F(Unprivileged, SomebodyElsesTemporaryBaseBlocksNobody) {
  fs::create_directory(temporary_);  // root's
  auto job =
      start_workers_in(as_other(), {"-n", "1", "--name", "night", "--status", "off"}, {"join", "steps=3", "forever"});
  ASSERT_TRUE(eventually([&] { return run_as_other({"ps"}).out.find("night") != std::string::npos; })) << job.err();
  EXPECT_SAYS(job.err(), temporary_ + " belongs to another user (0)");
  EXPECT_SAYS(job.err(), "; jobs are kept in " + path("home/.cache/pliant/"));
  EXPECT_EQ(lines_in(job.err()), 1U) << job.err();
  EXPECT_TRUE(fs::is_empty(temporary_));
  EXPECT_SAYS(run_as_other({"doctor"}).out, "warn     job directory");
  auto seen = run_as_other({"stop", "night"});
  EXPECT_EQ(seen.out, "stopped night\n") << seen.err;
}

TEST_F(Unprivileged, AgentAndCoordinatorLeaveNoCoreDumpsAndAreStillSeen) {
  auto job = start_workers_in(as_other(), {"-n", "2", "--name", "night"}, endless());
  auto formed = [&] {
    auto now = status();
    return now.is_object() && now["view"]["members"].size() == 2;
  };
  ASSERT_TRUE(eventually(formed)) << job.err();
  auto now = status();
  auto proc = [](const json& pid) { return fmt::format("/proc/{}/stat", pid.get<pid_t>()); };
  // The kernel gives the files about such processes to root.
  EXPECT_EQ(owner_of(proc(now["agent"]["pid"])), 0U);
  EXPECT_EQ(owner_of(proc(now["coordinator"]["pid"])), 0U);
  EXPECT_EQ(owner_of(proc(now["workers"][0]["pid"])), kOther) << "a worker is the user's own program";
  EXPECT_EQ(now["agent"]["alive"], true);
  EXPECT_EQ(now["coordinator"]["alive"], true);
  auto storm =
      run_as_other({"chaos", "night", "--yes", "--events", "1", "--kinds", "coordinator", "--log", "/dev/null"});
  EXPECT_SAYS(storm.out, "coordinator");
  EXPECT_EQ(storm.err.find("belongs to another user"), std::string::npos) << storm.err;
  auto before = now["coordinator"]["pid"];
  EXPECT_TRUE(eventually([&] { return status()["coordinator"]["pid"] != before && formed(); })) << storm.out;
  EXPECT_EQ(run_as_other({"stop", "night"}).out, "stopped night\n");
}

TEST_F(Users, DoctorWarnsOfOpenDoors) {
  fs::create_directory(path("open"));
  ASSERT_EQ(chmod(path("open").c_str(), 0777), 0);
  auto seen = run({"doctor"}, {"PLIANT_RECORD=" + path("open"), "XDG_RUNTIME_DIR=" + path("open")});
  for (const char* name : {"records", "runtime dir"}) EXPECT_SAYS(seen.out, fmt::format("warn     {:<14}", name));
  EXPECT_SAYS(seen.out, "core dumps");
}

}  // namespace
}  // namespace pliant::cli_test
