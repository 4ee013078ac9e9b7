#include "apps/pliant/job_dir.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "apps/pliant/coordinator_note.h"
#include "apps/pliant/job_base.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

namespace fs = std::filesystem;

class JobDirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    base_ = fs::temp_directory_path() / "pliant-jobs-XXXXXX";
    ASSERT_NE(mkdtemp(base_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(base_); }
  JobRecord record(const std::string& name) const {
    JobRecord record;
    record.name = name;
    record.program = "/bin/true";
    record.argv = {"true", "\xff"};
    record.agent = this_process();
    record.workers = {{this_process(), "o", "e"}};
    record.started_at = 12.5;
    record.grace = 3;
    record.output_dir = base_;
    return record;
  }
  /// A process that has ended: a pid that is no longer anybody's, or somebody else's.
  static ProcessId dead_process() {
    auto pid = fork();
    if (pid == 0) pause();
    ProcessId id{pid, start_time_of(pid).value_or(0)};
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return id;
  }
  /// The directory of a job whose agent was killed.
  void leave_behind(JobRecord left) {
    fs::create_directory(base_ + "/" + left.name);
    auto living = left;
    living.name = "template";
    auto dir = JobDir::create(base_, living);
    ASSERT_TRUE(dir.value().write(left).ok());
    fs::copy(dir.value().path() + "/job.json", base_ + "/" + left.name + "/job.json");
  }
  std::string base_;
};

TEST_F(JobDirTest, IsPrivateAndGoesAwayWithItsOwner) {
  {
    auto dir = JobDir::create(base_, record("one"));
    ASSERT_TRUE(dir.ok());
    struct stat info {};
    ASSERT_EQ(stat(dir.value().path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    std::ofstream(dir.value().path() + "/rank-0.out") << "text";
  }
  EXPECT_TRUE(fs::is_empty(base_));
}

TEST_F(JobDirTest, TheRecordComesBack) {
  auto dir = JobDir::create(base_, record("one"));
  auto jobs = list_jobs(base_).jobs;
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].record.name, "one");
  EXPECT_EQ(jobs[0].record.agent, this_process());
  EXPECT_EQ(jobs[0].record.argv.size(), 2u);
  EXPECT_EQ(jobs[0].record.workers.at(0).err, "e");
  EXPECT_DOUBLE_EQ(jobs[0].record.started_at, 12.5);
  EXPECT_TRUE(jobs[0].agent_alive);
  EXPECT_EQ(jobs[0].workers_alive, 1);
}

TEST_F(JobDirTest, ANameIsTakenWhileAnythingOfTheJobRuns) {
  auto dir = JobDir::create(base_, record("one"));
  EXPECT_EQ(JobDir::create(base_, record("one")).error().code, Code::refused);
  auto orphaned = record("two");
  orphaned.agent = dead_process();
  leave_behind(orphaned);
  EXPECT_EQ(JobDir::create(base_, record("two")).error().code, Code::refused);
  EXPECT_EQ(list_jobs(base_).jobs.size(), 2u);
}

TEST_F(JobDirTest, ThePlanComesBack) {
  auto planned = record("one");
  planned.plan = {"@c", "/tmp", {"A=1"}, "raw", 3, 7, 4, 2, 2, 8, 5};
  planned.workers[0].id = 9;
  auto dir = JobDir::create(base_, planned);
  auto seen = read_job(dir.value().path());
  ASSERT_TRUE(seen);
  const auto& plan = seen->record.plan;
  EXPECT_EQ(plan.coordinator + plan.cwd + plan.env.at(0) + plan.output, "@c/tmpA=1raw");
  EXPECT_EQ(std::tuple(plan.threads, plan.seed, plan.wanted, plan.start), std::tuple(3, 7U, 4U, 2U));
  EXPECT_EQ(std::tuple(plan.least, plan.most, plan.restarts), std::tuple(2U, 8U, 5));
  EXPECT_EQ(seen->record.workers.at(0).id, 9U);
}

TEST_F(JobDirTest, ACoordinatorAloneKeepsTheName) {
  auto dead = record("one");
  dead.agent = dead_process();
  dead.workers.clear();
  leave_behind(dead);
  CoordinatorNote note{this_process(), {}};
  ASSERT_TRUE(write_atomically(base_ + "/one" + kNoteFile, note_text(note)).ok());
  EXPECT_TRUE(list_jobs(base_).jobs.at(0).coordinator_alive);
  EXPECT_EQ(JobDir::create(base_, record("one")).error().code, Code::refused);
  note.process = dead.agent;
  ASSERT_TRUE(write_atomically(base_ + "/one" + kNoteFile, note_text(note)).ok());
  EXPECT_TRUE(JobDir::create(base_, record("one")).ok());
}

TEST_F(JobDirTest, AJobIsTakenUpOnceAndOnlyFromTheDead) {
  auto orphaned = record("one");
  orphaned.agent = dead_process();
  leave_behind(orphaned);
  auto job = *read_job(base_ + "/one");
  auto dir = JobDir::take_up(base_, job);
  ASSERT_TRUE(dir.ok()) << dir.error().message;
  EXPECT_EQ(job.record.agent, this_process());
  EXPECT_EQ(read_job(base_ + "/one")->record.agent, this_process());
  EXPECT_EQ(JobDir::take_up(base_, job).error().code, Code::refused);
  dir.value().release();
  { auto gone = std::move(dir).value(); }
  EXPECT_TRUE(fs::exists(base_ + "/one")) << "it was released";
}

TEST_F(JobDirTest, TheCoordinatorsNoteComesBack) {
  EXPECT_FALSE(read_note(base_));
  membership::Memory memory;
  memory.view = {3, 7, 42, 5, {{4, 104, "@four"}, {2, 102, "@two", "b", "10.0.0.2:4711"}}};
  memory.wanted = 3;
  memory.spare = 1;
  memory.next_id = 9;
  memory.restarts = -1;
  ASSERT_TRUE(write_atomically(base_ + kNoteFile, note_text({this_process(), memory})).ok());
  auto note = read_note(base_);
  ASSERT_TRUE(note);
  EXPECT_EQ(note->process, this_process());
  EXPECT_TRUE(note->memory == memory);
  ASSERT_TRUE(write_atomically(base_ + kNoteFile, "{}").ok());
  EXPECT_FALSE(read_note(base_));
}

TEST_F(JobDirTest, TheEnvironmentComesBackAsItWas) {
  std::vector<std::string> environment{"A=1\n2", "B=\xff", "C="};
  ASSERT_TRUE(write_environment(base_, environment).ok());
  EXPECT_EQ(read_environment(base_), environment);
}

TEST_F(JobDirTest, AReusedPidIsNotTheProcess) {
  auto gone = this_process();
  gone.start -= 1;
  EXPECT_FALSE(alive(gone));
  EXPECT_EQ(open_process(gone).error().code, Code::not_found);
  auto stale = record("stale");
  stale.agent = gone;
  stale.workers = {{gone, "", ""}};
  leave_behind(stale);
  EXPECT_TRUE(JobDir::create(base_, stale).ok());
}

TEST_F(JobDirTest, AZombieHasEnded) {
  auto pid = fork();
  if (pid == 0) _exit(0);
  ProcessId id{pid, start_time_of(pid).value_or(0)};
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(alive(id));
  waitpid(pid, nullptr, 0);
}

TEST_F(JobDirTest, DeadJobsAreSweptAndForeignFilesKept) {
  auto dead = record("dead");
  dead.agent = dead_process();
  dead.workers.clear();
  leave_behind(dead);
  auto kept = record("kept");
  kept.agent = dead.agent;
  kept.workers.clear();
  leave_behind(kept);
  std::ofstream(base_ + "/kept/notes.txt") << "mine";
  fs::create_directory(base_ + "/other");
  std::ofstream(base_ + "/other/job.json") << "not json";
  fs::create_directory(base_ + "/renamed");
  fs::copy(base_ + "/dead/job.json", base_ + "/renamed/job.json");

  EXPECT_TRUE(list_jobs(base_).jobs.empty());
  EXPECT_FALSE(fs::exists(base_ + "/dead"));
  EXPECT_TRUE(fs::exists(base_ + "/kept/notes.txt"));
  EXPECT_TRUE(fs::exists(base_ + "/other/job.json"));
  EXPECT_TRUE(fs::exists(base_ + "/renamed/job.json"));
  EXPECT_EQ(JobDir::create(base_, record("other")).error().code, Code::refused);
}

TEST_F(JobDirTest, WhatSlurmsProviderLeftIsSweptToo) {
  auto dead = record("dead");
  dead.agent = dead_process();
  dead.workers.clear();
  leave_behind(dead);
  for (const char* file : {"secret", "ticket", "ticket.new", "slurm", "slurm.sh", "sbatch.out", "sbatch.err",
                           "squeue.out", "squeue.err", "scancel.err", "host-17.out", "rank-3.note"})
    std::ofstream(base_ + "/dead/" + file) << "the secret is in here";
  EXPECT_TRUE(list_jobs(base_).jobs.empty());
  EXPECT_FALSE(fs::exists(base_ + "/dead"));
}

/// `pliant ps` or `pliant resize`, between the loss of a host and its next agent, must not destroy what that agent will
/// tell the others.
TEST_F(JobDirTest, TheDeadOfAHostsPartAreKeptForItsNextAgent) {
  auto part = record("night+a");
  part.job = "night";
  part.agent = dead_process();
  part.workers = {{dead_process(), "o", "e", 4}};
  leave_behind(part);
  EXPECT_TRUE(list_jobs(base_).jobs.empty());
  auto found = read_job(base_ + "/night+a");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->record.workers.at(0).id, 4u);

  fs::last_write_time(base_ + "/night+a", fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_TRUE(list_jobs(base_).jobs.empty());
  EXPECT_FALSE(fs::exists(base_ + "/night+a"));
}

TEST_F(JobDirTest, Names) {
  for (const char* good : {"a", "train-3f", "a.b_c+d", "9"}) EXPECT_EQ(objection_to_name(good), "") << good;
  for (const char* bad : {"", ".", "..", "-n", ".hidden", "a/b", "a b", "a\n"})
    EXPECT_NE(objection_to_name(bad), "") << bad;
  EXPECT_NE(objection_to_name(std::string(121, 'a')), "");
}

// ---- who may be believed ----

TEST_F(JobDirTest, ADirectoryThatOthersCanWriteToIsNoJob) {
  auto dir = JobDir::create(base_, record("one"));
  ASSERT_EQ(chmod((base_ + "/one").c_str(), 0777), 0);
  auto seen = list_jobs(base_);
  EXPECT_TRUE(seen.jobs.empty());
  ASSERT_EQ(seen.refused.size(), 1U);
  EXPECT_EQ(seen.refused[0].first, "one");
  EXPECT_EQ(seen.refused[0].second.code, Code::refused);
  EXPECT_FALSE(read_job(base_ + "/one"));
  EXPECT_FALSE(read_job_file(base_ + "/one", "/job.json"));
  Job job{record("one"), base_ + "/one"};
  EXPECT_EQ(JobDir::take_up(base_, job).error().code, Code::refused);
  EXPECT_EQ(JobDir::create(base_, record("one")).error().code, Code::refused);
}

TEST_F(JobDirTest, LinksAreNoJobs) {
  auto dir = JobDir::create(base_, record("one"));
  fs::create_directory(base_ + "/two");
  fs::create_symlink(base_ + "/one/job.json", base_ + "/two/job.json");
  fs::create_symlink(base_ + "/one", base_ + "/three");
  EXPECT_EQ(open_job(base_ + "/two").error().code, Code::refused);
  EXPECT_EQ(open_job(base_ + "/three").error().code, Code::refused);
  fs::create_symlink(base_ + "/victim", base_ + "/two/status.json.new");
  EXPECT_FALSE(write_atomically(base_ + "/two/status.json", "text").ok());
  EXPECT_FALSE(fs::exists(base_ + "/victim"));
}

TEST_F(JobDirTest, AnotherUsersDirectoryIsNoJob) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  leave_behind(record("one"));
  ASSERT_EQ(chown((base_ + "/one").c_str(), 65534, 65534), 0);
  EXPECT_EQ(open_job(base_ + "/one").error().code, Code::refused);
  ASSERT_EQ(chown((base_ + "/one").c_str(), 0, 0), 0);
  ASSERT_EQ(chown((base_ + "/one/job.json").c_str(), 65534, 65534), 0);
  EXPECT_EQ(open_job(base_ + "/one").error().code, Code::refused);
}

/// A folder that machines share: what runs there cannot be judged from here.
TEST_F(JobDirTest, JobsOfAnotherMachineAreNeitherListedNorSwept) {
  auto far = record("far");
  far.machine = {"another", "boot"};
  leave_behind(far);
  EXPECT_TRUE(list_jobs(base_).jobs.empty());
  EXPECT_TRUE(fs::exists(base_ + "/far/job.json"));
  EXPECT_EQ(JobDir::create(base_, record("far")).error().code, Code::refused);
  auto restarted = record("restarted");
  restarted.machine = {this_machine().name, "an earlier boot"};
  restarted.agent = dead_process();
  restarted.workers.clear();
  leave_behind(restarted);
  EXPECT_TRUE(list_jobs(base_).jobs.empty());
  EXPECT_FALSE(fs::exists(base_ + "/restarted"));
}

TEST_F(JobDirTest, NobodySignalsProcessOneOrEverybody) {
  for (pid_t pid : {1, 0, -1}) {
    ProcessId id{pid, start_time_of(pid).value_or(0)};
    EXPECT_EQ(open_process(id).error().code, Code::not_found) << pid;
    Fd own = open_process(this_process()).or_throw();
    EXPECT_FALSE(signal_group(id, own, 0)) << pid;
    EXPECT_FALSE(signal_child_group(pid, own, 0)) << pid;
  }
}

// ---- bases ----

class BaseTest : public JobDirTest {
 protected:
  void SetUp() override {
    JobDirTest::SetUp();
    for (const char* name : kNames) unsetenv(name);
    setenv("HOME", base_.c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : kNames) unsetenv(name);
    JobDirTest::TearDown();
  }
  static constexpr const char* kNames[] = {"PLIANT_DIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"};
};

TEST_F(BaseTest, ComesFromTheEnvironment) {
  setenv("PLIANT_DIR", (base_ + "/deep/er/").c_str(), 1);
  EXPECT_EQ(choose_base().or_throw().path, base_ + "/deep/er");
  EXPECT_EQ(job_bases().or_throw(), std::vector{base_ + "/deep/er"});
  std::ofstream(base_ + "/file") << "";
  setenv("PLIANT_DIR", (base_ + "/file").c_str(), 1);
  EXPECT_FALSE(choose_base().ok());
  unsetenv("PLIANT_DIR");
  setenv("XDG_RUNTIME_DIR", base_.c_str(), 1);
  EXPECT_EQ(choose_base().or_throw().path, base_ + "/pliant");
  EXPECT_EQ(choose_base().or_throw().remark, "");
  EXPECT_EQ(job_bases().or_throw().at(0), base_ + "/pliant");
}

TEST_F(BaseTest, OneThatOthersCanWriteToIsRefused) {
  setenv("PLIANT_DIR", (base_ + "/open").c_str(), 1);
  fs::create_directory(base_ + "/open");
  ASSERT_EQ(chmod((base_ + "/open").c_str(), 0777), 0);
  EXPECT_EQ(choose_base().error().code, Code::refused);
  EXPECT_EQ(job_bases().error().code, Code::refused);
  ASSERT_EQ(chmod((base_ + "/open").c_str(), 0755), 0);
  EXPECT_TRUE(choose_base().ok());
  ASSERT_EQ(chmod(base_.c_str(), 0777), 0);
  EXPECT_EQ(choose_base().error().code, Code::refused) << "another one could be put in its place";
  ASSERT_EQ(chmod(base_.c_str(), 01777), 0);
  EXPECT_TRUE(choose_base().ok());
}

TEST_F(BaseTest, AnotherUsersIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  auto theirs = base_ + "/theirs";
  fs::create_directory(theirs);
  ASSERT_EQ(chown(theirs.c_str(), 65534, 65534), 0);
  setenv("PLIANT_DIR", theirs.c_str(), 1);
  EXPECT_EQ(choose_base().error().code, Code::refused);
}

TEST_F(BaseTest, ARuntimeDirectoryThatIsNotPrivateIsPassedOver) {
  setenv("XDG_RUNTIME_DIR", base_.c_str(), 1);
  ASSERT_EQ(chmod(base_.c_str(), 0777), 0);
  auto chosen = choose_base().or_throw();
  EXPECT_FALSE(chosen.path.starts_with(base_)) << chosen.path;
  EXPECT_NE(chosen.remark.find("other users can write to " + base_), std::string::npos) << chosen.remark;
  setenv("XDG_RUNTIME_DIR", (base_ + "/none").c_str(), 1);
  EXPECT_EQ(choose_base().or_throw().remark, "");
  EXPECT_FALSE(fs::exists(base_ + "/none"));
}

TEST_F(BaseTest, JobsThatOtherMachinesLookIntoAreInTheHomeDirectory) {
  auto chosen = choose_base(Reach::cluster).or_throw();
  EXPECT_EQ(chosen.path, base_ + "/.cache/pliant/" + host_name() + "/jobs");
  auto all = job_bases().or_throw();
  EXPECT_NE(std::ranges::find(all, chosen.path), all.end());
}

}  // namespace
}  // namespace pliant::cli
