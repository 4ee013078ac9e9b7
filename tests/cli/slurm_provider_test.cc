// Workers from Slurm: from one that misbehaves, and from a real one of four nodes that exists for the test alone.
#include "apps/pliant/slurm_provider.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "cli/harness.h"
#include "cli/slurm_cluster.h"

namespace pliant::cli_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using cli::SlurmJob;
using cli::SlurmState;

constexpr char kTicket[] = "pliant ticket\njob j\nsecret hush\n";

// ---- a provider, on the thread of its loop ----

class WithProvider : public CliTest {
 protected:
  /// Does it on the loop's thread.
  template <class Question>
  auto ask(Question question) {
    std::packaged_task<decltype(question())()> task(std::move(question));
    auto answer = task.get_future();
    loop_.post([&] { task(); });
    return answer.get();
  }
  void SetUp() override {
    CliTest::SetUp();
    fs::create_directories(path("job"));
    std::ofstream(path("job/ticket")) << kTicket;
    ASSERT_EQ(chmod(path("job/ticket").c_str(), 0600), 0);
    thread_ = std::thread([this] { loop_.run(); });
  }
  void TearDown() override {
    stop();
    CliTest::TearDown();
  }
  /// From then on nobody reads the environment.
  void stop() {
    if (!thread_.joinable()) return;
    ask([this] { provider_.reset(); });
    loop_.stop();
    thread_.join();
  }
  void provide(const std::string& options, Nanos patience = 30s, Nanos notice = 1s) {
    cli::ProviderEvents events;
    events.on_notice = [this](const std::string& who, double) { notices_.push_back(who); };
    events.on_trouble = [this](const std::string& line) { troubles_.push_back(line); };
    events.on_change = [] {};
    ask([&] {
      cli::SlurmPlace place{path("job"), "j", path("agent"), notice, patience};
      provider_.reset();
      provider_ =
          std::make_unique<cli::SlurmProvider>(loop_, cli::parse_slurm(options).value(), place, std::move(events));
    });
  }
  void request(std::uint32_t slots) {
    ask([&] { provider_->request(slots); });
  }
  void release(std::uint32_t slots) {
    ask([&] { provider_->release(slots); });
  }
  void end() {
    ask([&] { provider_->end(); });
  }
  std::vector<SlurmJob> jobs() {
    return ask([&] { return provider_->jobs(); });
  }
  /// Those of use that are in this state.
  std::set<std::uint64_t> ids(SlurmState state) {
    std::set<std::uint64_t> found;
    for (const auto& job : jobs())
      if (job.state == state && !job.released) found.insert(job.id);
    return found;
  }
  bool run_becomes(std::size_t count) {
    return eventually([&] { return ids(SlurmState::running).size() == count && jobs().size() == count; }, 90s);
  }
  std::vector<std::string> notices() {
    return ask([&] { return notices_; });
  }
  std::string troubles() {
    return ask([&] { return fmt::format("{}", fmt::join(troubles_, "\n")); });
  }
  void write_program(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name)) << "#!/bin/sh\n" << text;
    ASSERT_EQ(chmod(path(name).c_str(), 0755), 0);
  }

  net::Loop loop_;
  std::thread thread_;
  std::unique_ptr<cli::SlurmProvider> provider_;  // like all below, of the loop's thread
  std::vector<std::string> notices_, troubles_;
};

// ---- a Slurm that misbehaves ----

/// Programs that do as they like. A Slurm job is a file with what squeue says about it; more files say how to
/// misbehave.
class FakeSlurm : public WithProvider {
 protected:
  void SetUp() override {
    WithProvider::SetUp();
    fs::create_directories(path("fake"));
    auto begin = fmt::format(
        "cd {}\nprogram=$(basename \"$0\")\necho \"$*\" >>\"$program.calls\"\n"
        "if [ -e \"$program.hangs\" ]; then exec sleep 1000; fi\n"
        "if [ -e \"$program.says\" ]; then cat \"$program.says\"; exit; fi\n"
        "if [ -e \"$program.forgets\" ]; then exec rm \"$program.forgets\"; fi\n",
        path("fake"));
    write_program("bin/sbatch", begin +
                                    "cat >script\nid=$(($(cat last 2>/dev/null || echo 0) + 1))\n"
                                    "if [ -e room ] && [ $id -gt $(cat room) ]; then\n"
                                    "  echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1\nfi\n"
                                    "echo $id >last\n"
                                    "(cat begin 2>/dev/null || echo RUNNING 0 NONE N/A 0 n$id) >new && mv new job.$id\n"
                                    "if [ -e sbatch.is_mute ]; then exec sleep 1000; fi\n"
                                    "echo $id\n");
    write_program("bin/squeue", begin +
                                    "for job in job.*; do\n"
                                    "  if line=$(cat $job 2>/dev/null); then echo ${job#job.} $line; fi\ndone\n");
    write_program("bin/scancel", begin +
                                     "case $* in *--name=*) rm -f job.*;; *--signal*) exit;; esac\n"
                                     "for id in $*; do rm -f job.$id; done\n");
    write_program("bin/sinfo", begin + "echo spot 3\n");
    path_ = std::getenv("PATH");
    setenv("PATH", (path("bin") + ":" + path_).c_str(), 1);
  }
  void TearDown() override {
    stop();
    setenv("PATH", path_.c_str(), 1);
    WithProvider::TearDown();
  }
  std::string fake(const std::string& file) const { return path("fake/" + file); }
  void write(const std::string& file, const std::string& text = "") const {
    std::ofstream(fake(file + ".new")) << text;  // at once: programs look at any time
    fs::rename(fake(file + ".new"), fake(file));
  }
  std::size_t calls(const std::string& program) const { return lines_in(read_all(fake(program + ".calls"))); }
  /// Waits until a program was called so many times more.
  bool goes_on(const std::string& program, std::size_t more) const {
    auto before = calls(program);
    return eventually([&] { return calls(program) >= before + more; }, 90s);
  }
  std::string path_;
};

TEST_F(FakeSlurm, SlotsAreRoundedUpToSlurmJobsAndCapacityCountsIdleNodes) {
  provide("partition=spot,slots=2");
  request(5);
  ASSERT_TRUE(run_becomes(3)) << troubles();
  EXPECT_TRUE(eventually([&] { return ask([&] { return provider_->capacity(); }) == (3U + 3U) * 2; }));
  ASSERT_TRUE(goes_on("squeue", 2));
  EXPECT_EQ(calls("sbatch"), 3U);
  EXPECT_SAYS(read_all(fake("script")), "<\"$ticket\"");
  for (const char* seen : {"script", "sbatch.calls"})
    EXPECT_EQ(read_all(fake(seen)).find("hush"), std::string::npos) << seen;
  EXPECT_EQ(jobs()[2].host, "n3.3");
  EXPECT_EQ(ask([&] { return provider_->outputs(); })[2], path("job/host-3"));
  end();
  EXPECT_FALSE(fs::exists(fake("job.1")));
  EXPECT_EQ(troubles(), "");
}

TEST_F(FakeSlurm, WhatIsRefusedIsSaidOnceAndTriedAgainAndWhatThereIsStays) {
  write("room", "2");
  provide("partition=spot");
  request(3);
  ASSERT_TRUE(run_becomes(2));
  ASSERT_TRUE(goes_on("sbatch", 2));
  EXPECT_EQ(troubles(), "Slurm: sbatch: error: QOSMaxSubmitJobPerUserLimit");
  EXPECT_EQ(ids(SlurmState::running), (std::set<std::uint64_t>{1, 2}));
  write("room", "9");
  ASSERT_TRUE(run_becomes(3));
  EXPECT_EQ(lines_in(troubles()), 0U);
}

TEST_F(FakeSlurm, ProgramsThatDoNotAnswerAreKilledAndTriedAgain) {
  write("sbatch.hangs");
  write("squeue.hangs");
  provide("partition=spot", 1s);
  request(1);
  ASSERT_TRUE(eventually([&] { return !troubles().empty() && calls("squeue") >= 2; })) << troubles();
  EXPECT_SAYS(troubles(), "Slurm: sbatch does not answer");
  EXPECT_SAYS(troubles(), "Slurm: squeue does not answer");
  EXPECT_EQ(calls("sbatch"), 1U);  // it may have submitted something: nobody can look
  fs::remove(fake("squeue.hangs"));
  ASSERT_TRUE(goes_on("sbatch", 1));
  fs::remove(fake("sbatch.hangs"));
  EXPECT_TRUE(run_becomes(1));
}

TEST_F(FakeSlurm, WhatWasSubmittedWithoutAnAnswerIsFound) {
  write("sbatch.is_mute");
  provide("partition=spot", 2s);
  request(1);
  ASSERT_TRUE(run_becomes(1));
  ASSERT_TRUE(goes_on("squeue", 3));
  EXPECT_EQ(calls("sbatch"), 1U);
}

TEST_F(FakeSlurm, NonsenseChangesNothing) {
  provide("partition=spot");
  request(2);
  ASSERT_TRUE(run_becomes(2));
  write("squeue.says", "what a lovely day\n");
  ASSERT_TRUE(goes_on("squeue", 3));
  EXPECT_EQ(troubles(), "Slurm: squeue answers nonsense: 'what a lovely day'");
  EXPECT_EQ(ids(SlurmState::running).size(), 2U);
  write("squeue.forgets");  // all of them, but only for a moment
  fs::remove(fake("squeue.says"));
  ASSERT_TRUE(eventually([&] { return !fs::exists(fake("squeue.forgets")); }) && goes_on("squeue", 2));
  EXPECT_EQ(calls("sbatch"), 2U);
  write("sbatch.says", "Submitted with love\n");
  request(3);
  ASSERT_TRUE(goes_on("sbatch", 2));
  EXPECT_SAYS(troubles(), "sbatch answers nonsense: 'Submitted with love'");
  EXPECT_EQ(ids(SlurmState::running).size(), 2U);
}

TEST_F(FakeSlurm, WhatIsLostIsReplacedAndWhatIsTakenGivesNotice) {
  provide("partition=spot");
  request(3);
  ASSERT_TRUE(run_becomes(3));
  fs::remove(fake("job.1"));
  write("job.2", "RUNNING 0 1794789043 1794789035 0 n2");
  ASSERT_TRUE(eventually([&] { return notices() == Words{"n2.2"}; }));
  write("job.2", "FAILED 0 1794789043 1794789035 36608 n2");
  ASSERT_TRUE(eventually([&] { return ids(SlurmState::running) == std::set<std::uint64_t>{3, 4, 5}; }));
  write("job.3", "COMPLETING 1 NONE 1794789035 0 n3");
  ASSERT_TRUE(eventually([&] { return notices().size() == 2; }));
  write("job.3", "PENDING 1 NONE N/A 0");
  ASSERT_TRUE(eventually([&] { return ids(SlurmState::waiting).contains(3); }));
  write("job.3", "RUNNING 1 NONE N/A 0 n7");
  ASSERT_TRUE(eventually([&] { return ids(SlurmState::running).contains(3); }));
  EXPECT_EQ(notices(), (Words{"n2.2", "n3.3"}));
  EXPECT_EQ(calls("sbatch"), 5U);
}

TEST_F(FakeSlurm, WhatEndsAtOnceIsNotStartedAtOnceAgain) {
  write("begin", "FAILED 0 NONE N/A 768 n1");
  provide("partition=spot");
  auto begin = std::chrono::steady_clock::now();
  request(2);
  ASSERT_TRUE(eventually([&] { return calls("sbatch") >= 5; }, 90s));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 3s);  // 1 s, then 2 s
  EXPECT_EQ(lines_in(troubles()), 0U) << troubles();
  EXPECT_SAYS(troubles(), "has ended after 0 s (FAILED, exit code 3)");
  EXPECT_TRUE(jobs().size() <= 2);
}

TEST_F(FakeSlurm, WhoWaitsGoesFirstThenTheNewestAndForGoodIfItStays) {
  provide("partition=spot", 30s, 0s);
  request(3);
  ASSERT_TRUE(run_becomes(3));
  write("begin", "PENDING 0 N/A N/A 0");
  request(4);
  ASSERT_TRUE(eventually([&] { return ids(SlurmState::waiting).contains(4); }));
  release(2);
  ASSERT_TRUE(run_becomes(2));  // in the end, as nobody heeds the signal
  EXPECT_EQ(read_all(fake("scancel.calls")), "4\n--signal=TERM 3\n3\n");
  EXPECT_EQ(calls("sbatch"), 4U);
  EXPECT_EQ(notices(), Words{});
}

TEST_F(FakeSlurm, AnotherProviderOfTheSameJobGoesOnWithWhatThereIs) {
  provide("partition=spot");
  request(2);
  ASSERT_TRUE(run_becomes(2));
  provide("partition=spot");
  request(2);
  ASSERT_TRUE(run_becomes(2));
  request(3);
  ASSERT_TRUE(run_becomes(3));
  EXPECT_EQ(calls("sbatch"), 3U);
  std::istringstream asked(read_all(fake("squeue.calls")));
  std::set<std::string> questions;
  for (std::string line; std::getline(asked, line);) questions.insert(line);
  EXPECT_EQ(questions.size(), 1U);  // by one name
}

TEST_F(FakeSlurm, WithoutItsProgramsItSaysSo) {
  setenv("PATH", "/nowhere", 1);
  provide("partition=spot");
  request(1);
  EXPECT_TRUE(eventually([&] { return troubles().find("cannot run sbatch") != std::string::npos; }));
  end();
}

// ---- a real one ----

class RealSlurm : public OnCluster<WithProvider> {
 protected:
  void SetUp() override {
    OnCluster::SetUp();
    // Writes down who it is and what it gets.
    write_program("agent", fmt::format("said={}\nhost=${{3#--host=}}\necho start \"$host\" \"$4\" >>$said\n"
                                       "trap 'echo TERM \"$host\" >>$said; exit 143' TERM\n"
                                       "cat >{}.$SLURM_JOB_ID\nwhile :; do sleep 0.1; done\n",
                                       path("said"), path("ticket")));
  }
  void TearDown() override {
    stop();
    OnCluster::TearDown();
  }
  std::size_t said(const std::string& word) const {
    auto text = read_all(path("said"));
    std::size_t found = 0;
    for (auto at = text.find(word + " n"); at != std::string::npos; at = text.find(word + " n", at + 1)) ++found;
    return found;
  }
};

TEST_F(RealSlurm, FourRunTwoGoAnotherHeadGoesOnAndNothingIsLeft) {
  START_CLUSTER("5");
  provide("partition=spot,slots=2");
  request(8);
  ASSERT_TRUE(run_becomes(4)) << troubles() << shell("squeue");
  ASSERT_TRUE(eventually([&] { return said("start") == 4; })) << read_all(path("said"));
  auto first = jobs()[0];
  EXPECT_SAYS(read_all(path("said")), "start " + first.host + " --slots=2\n");
  EXPECT_TRUE(eventually([&] { return read_all(path(fmt::format("ticket.{}", first.id))) == kTicket; }));
  EXPECT_EQ(shell("ps -eo args | grep -c '[h]ush' || true"), "0\n");
  auto script = shell(fmt::format("scontrol write batch_script {} -", first.id));
  EXPECT_SAYS(script, "run --join=-");
  EXPECT_EQ(script.find("hush"), std::string::npos) << script;
  EXPECT_TRUE(eventually([&] { return ask([&] { return provider_->capacity(); }) == 8U; }));

  release(4);
  ASSERT_TRUE(run_becomes(2)) << shell("squeue");
  EXPECT_EQ(said("TERM"), 2U) << read_all(path("said"));
  EXPECT_EQ(notices(), Words{});

  auto before = ids(SlurmState::running);
  provide("partition=spot,slots=2");
  request(6);
  ASSERT_TRUE(run_becomes(3)) << troubles() << shell("squeue");
  EXPECT_TRUE(std::ranges::includes(ids(SlurmState::running), before));
  ASSERT_TRUE(eventually([&] { return said("start") == 5; })) << read_all(path("said"));
  end();
  EXPECT_TRUE(queue_is_empty()) << shell("squeue");
  EXPECT_EQ(said("TERM"), 5U) << read_all(path("said"));
  EXPECT_EQ(troubles(), "");
}

TEST_F(RealSlurm, ANodeThatDoesNotSeeTheJobsDirectoryIsNamed) {
  START_CLUSTER("5");
  fs::remove(path("job/ticket"));
  provide("partition=spot");
  request(1);
  ASSERT_TRUE(eventually([&] { return !troubles().empty(); }, 90s)) << shell("squeue");
  EXPECT_SAYS(troubles(), "its node does not see " + path("job") + " (PLIANT_DIR names a folder");
  end();
}

TEST_F(RealSlurm, WhoIsPreemptedHearsOfItAndOthersComeForThem) {
  START_CLUSTER("600");  // who hears of it only at the end is too late
  provide("partition=spot");
  request(4);
  ASSERT_TRUE(run_becomes(4) && eventually([&] { return said("start") == 4; })) << troubles() << shell("squeue");
  take_two_nodes(path("enough"));
  ASSERT_TRUE(eventually([&] { return notices().size() == 2; })) << shell("squeue");
  EXPECT_EQ(said("TERM"), 2U) << read_all(path("said"));
  for (const auto& host : notices()) EXPECT_SAYS(read_all(path("said")), "TERM " + host + "\n");
  ASSERT_TRUE(eventually([&] { return ids(SlurmState::waiting).size() == 2; })) << shell("squeue");
  std::ofstream(path("enough")) << "";
  EXPECT_TRUE(run_becomes(4)) << shell("squeue");
  EXPECT_TRUE(eventually([&] { return said("start") == 6; })) << read_all(path("said"));
  EXPECT_EQ(troubles(), "");
  end();
  EXPECT_TRUE(queue_is_empty()) << shell("squeue");
}

TEST_F(RealSlurm, WhoIsQueuedAgainComesBackByItself) {
  START_CLUSTER("0");
  provide("partition=requeue");
  request(4);
  ASSERT_TRUE(run_becomes(4) && eventually([&] { return said("start") == 4; })) << troubles() << shell("squeue");
  auto before = ids(SlurmState::running);
  take_two_nodes(path("enough"));
  ASSERT_TRUE(eventually([&] { return notices().size() == 2; })) << shell("squeue");
  EXPECT_GE(said("TERM"), 2U) << read_all(path("said"));
  ASSERT_TRUE(eventually([&] { return ids(SlurmState::waiting).size() == 2; })) << shell("squeue");
  std::ofstream(path("enough")) << "";
  EXPECT_TRUE(run_becomes(4)) << shell("squeue");
  EXPECT_EQ(ids(SlurmState::running), before);
  EXPECT_TRUE(eventually([&] { return said("start") == 6; })) << read_all(path("said"));
  end();
  EXPECT_TRUE(queue_is_empty()) << shell("squeue");
}

}  // namespace
}  // namespace pliant::cli_test
