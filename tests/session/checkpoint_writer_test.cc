// What happens in the background, to several at once, on a full disk, and when the writer is killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <functional>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "base/system.h"
#include "session/checkpoint.h"
#include "session/checkpoint_draft.h"
#include "session/checkpoint_files.h"

namespace pliant::session {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Names = std::vector<std::string>;

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 6000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

bool begin(CheckpointWriter& writer, std::uint64_t step, std::size_t count = 7) {
  EveryType state(step, count);
  return writer.begin(position_at(step), state.items());
}

/// True if there is a draft with both files in it.
bool draft_is_written(const std::string& dir) {
  for (const auto& name : names_in(dir))
    if (name.starts_with(".tmp-") && fs::exists(dir + "/" + name + kRecordFile)) return true;
  return false;
}

TEST(CheckpointWriter, NamesItOnlyWhenItIsStable) {
  TempFolder dir;
  CheckpointWriter writer(dir.path(), 2);
  ASSERT_TRUE(begin(writer, 5));
  ASSERT_TRUE(eventually([&] { return draft_is_written(dir.path()); }));
  writer.stable(4);
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(steps_in(dir.path()).empty());
  prune_checkpoints(dir.path(), 2);
  EXPECT_TRUE(draft_is_written(dir.path())) << "a draft with a living writer stays";
  EXPECT_FALSE(begin(writer, 6)) << "the one before still waits";
  writer.stable(5);
  ASSERT_TRUE(eventually([&] { return names_in(dir.path()) == Names{"step-000000000005"}; }));
  EXPECT_TRUE(is_as_written(newest_checkpoint(dir.path()).or_throw()));
  EXPECT_EQ(writer.failures(), 0U);
}

TEST(CheckpointWriter, TheDestructorFinishesWhatIsStable) {
  TempFolder dir;
  {
    CheckpointWriter writer(dir.path(), 2);
    ASSERT_TRUE(begin(writer, 0, 10000));
    writer.stable(0);
  }
  EXPECT_EQ(names_in(dir.path()), Names{"step-000000000000"});
  EXPECT_TRUE(is_as_written(newest_checkpoint(dir.path()).or_throw(), 10000));
}

TEST(CheckpointWriter, TheDestructorDropsWhatIsNot) {
  TempFolder dir;
  {
    CheckpointWriter writer(dir.path(), 2);
    ASSERT_TRUE(begin(writer, 5));
    writer.stable(4);
  }
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(CheckpointWriter, DropsTheStateOfAStepThatIsRedone) {
  TempFolder dir;
  CheckpointWriter writer(dir.path(), 2);
  EveryType wrong(1);
  ASSERT_TRUE(writer.begin(position_at(5), wrong.items()));
  ASSERT_TRUE(eventually([&] { return begin(writer, 5); })) << "the first is dropped, and then there is room";
  writer.stable(5);
  ASSERT_TRUE(eventually([&] { return names_in(dir.path()) == Names{"step-000000000005"}; }));
  EXPECT_TRUE(is_as_written(newest_checkpoint(dir.path()).or_throw()));
  EXPECT_EQ(writer.failures(), 0U);
}

/// A worker that was left behind at step 20 is taken in again by a job that has begun once more from step 10.
TEST(CheckpointWriter, WhatWasStableInAnEarlierHistoryNamesNothing) {
  TempFolder dir;
  CheckpointWriter writer(dir.path(), 2);
  writer.stable(20);
  ASSERT_TRUE(begin(writer, 15));
  ASSERT_TRUE(eventually([&] { return draft_is_written(dir.path()); }));
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(steps_in(dir.path()).empty());
  writer.stable(15);
  EXPECT_TRUE(eventually([&] { return names_in(dir.path()) == Names{"step-000000000015"}; }));
}

TEST(CheckpointWriter, KeepsSoMany) {
  TempFolder dir;
  {
    CheckpointWriter writer(dir.path(), 3);
    for (std::uint64_t step = 1; step <= 6; ++step) {
      ASSERT_TRUE(eventually([&] { return begin(writer, step); }));
      writer.stable(step);
    }
  }
  EXPECT_EQ(names_in(dir.path()), (Names{"step-000000000004", "step-000000000005", "step-000000000006"}));
}

/// The writer may have left its job, and another worker was told to begin again from what was there then.
TEST(CheckpointStorage, GivesTheNewestNotBeforeTheOneWanted) {
  TempFolder dir;
  auto& disk = checkpoints_on_disk();
  for (std::uint64_t step : {3, 5}) write_checkpoint(dir.path(), position_at(step), {}).or_throw();
  EXPECT_EQ(disk.read(dir.path(), 5).or_throw().position.step, 5U);
  write_checkpoint(dir.path(), position_at(8), {}).or_throw();
  for (std::uint64_t step : {3, 5, 8}) EXPECT_EQ(disk.read(dir.path(), step).or_throw().position.step, 8U);
  EXPECT_EQ(disk.read(dir.path(), 9).error().code, Code::not_found);
}

TEST(CheckpointWriter, CopiesBeforeItReturns) {
  TempFolder dir;
  {
    CheckpointWriter writer(dir.path(), 1);
    EveryType state(5, 100000);
    ASSERT_TRUE(writer.begin(position_at(5), state.items()));
    for (auto& item : state.items()) std::memset(item.data, 0, item.bytes());
    writer.stable(5);
  }
  EXPECT_TRUE(is_as_written(newest_checkpoint(dir.path()).or_throw(), 100000));
}

TEST(CheckpointWriter, AFolderThatCannotBeWrittenIsOneLineAndAFailure) {
  TempFolder dir;
  write_file(dir.path() + "/file", "");
  testing::internal::CaptureStderr();
  {
    CheckpointWriter writer(dir.path() + "/file/x", 1);
    ASSERT_TRUE(begin(writer, 5));
    ASSERT_TRUE(eventually([&] { return writer.failures() == 1; }));
    EXPECT_TRUE(eventually([&] { return begin(writer, 6); })) << "it goes on";
    EXPECT_TRUE(eventually([&] { return writer.failures() == 2; }));
  }
  auto said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 2) << said;
  EXPECT_NE(said.find("warning: no checkpoint of step 5: cannot create " + dir.path()), std::string::npos) << said;
}

/// Runs it in a process of its own; true if it returned true.
bool in_child(const std::function<bool()>& body) {
  auto child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// A disk of 512 KiB at `dir` for this process only, or at least files of at most that size.
void make_small_disk(const std::string& dir) {
  if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
      mount("pliant-test", dir.c_str(), "tmpfs", 0, "size=512k,mode=0700") == 0)
    return;
  std::puts("no mount allowed: a limit on the size of files instead");
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit{512 << 10, 512 << 10};
  setrlimit(RLIMIT_FSIZE, &limit);
}

#define HOLDS(condition)                             \
  do {                                               \
    if (!(condition)) {                              \
      std::printf("%d: %s\n", __LINE__, #condition); \
      std::fflush(stdout);                           \
      return false;                                  \
    }                                                \
  } while (false)

TEST(CheckpointWriter, AFullDiskCostsOneCheckpointAndNothingElse) {
  TempFolder dir;
  EXPECT_TRUE(in_child([&] {
    make_small_disk(dir.path());
    constexpr std::size_t kTooMany = 40000;  // 31 bytes each
    HOLDS(write_step(dir.path(), 1).ok());
    auto refused = write_step(dir.path(), 2, kTooMany);
    HOLDS(!refused.ok() && refused.error().code == Code::io);
    HOLDS(names_in(dir.path()) == Names{"step-000000000001"});
    CheckpointWriter writer(dir.path(), 2);
    HOLDS(begin(writer, 3, kTooMany));
    writer.stable(3);
    HOLDS(eventually([&] { return writer.failures() == 1; }));
    HOLDS(names_in(dir.path()) == Names{"step-000000000001"});
    HOLDS(is_as_written(newest_checkpoint(dir.path()).or_throw()));
    HOLDS(eventually([&] { return begin(writer, 4); }));
    writer.stable(4);
    HOLDS(eventually([&] { return steps_in(dir.path()).size() == 2; }));
    HOLDS(is_as_written(newest_checkpoint(dir.path()).or_throw()) && writer.failures() == 1);
    return true;
  }));
}

TEST(CheckpointConcurrency, WritersReadersAndCleanersInOneFolder) {
  TempFolder dir;
  write_step(dir.path(), 0).or_throw();
  std::atomic<bool> stop = false;
  std::atomic<int> read = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t writer = 0; writer < 2; ++writer)
    threads.emplace_back([&, writer] {
      for (std::uint64_t step = 1; step <= 60; ++step) {
        write_step(dir.path(), 2 * (step / 2) + writer).or_throw();  // each step twice
        prune_checkpoints(dir.path(), 2);
      }
    });
  threads.emplace_back([&] {
    while (!stop) prune_checkpoints(dir.path(), 2);
  });
  threads.emplace_back([&] {
    while (!stop) {
      EXPECT_TRUE(is_as_written(newest_checkpoint(dir.path()).or_throw()));
      ++read;
    }
  });
  threads[0].join(), threads[1].join();
  EXPECT_TRUE(eventually([&] { return read > 0; }));
  stop = true;
  threads[2].join(), threads[3].join();
  prune_checkpoints(dir.path(), 2);
  EXPECT_EQ(names_in(dir.path()), (Names{"step-000000000060", "step-000000000061"}));
}

/// Writes steps from `first` on until it is killed, each twice now and then, and reports each that is on the disk.
[[noreturn]] void write_for_ever(const std::string& dir, std::uint64_t first, int report) {
  for (auto step = first;; ++step) {
    for (std::uint64_t times = 0; times < 1 + step % 2; ++times) {
      if (!write_step(dir, step, 500)) _exit(1);
      if (write(report, &step, sizeof(step)) != sizeof(step)) _exit(2);
    }
    prune_checkpoints(dir, 2);
  }
}

/// The same in the background; reports nothing.
[[noreturn]] void write_in_background_for_ever(const std::string& dir, std::uint64_t step) {
  CheckpointWriter writer(dir, 2);
  while (true) {
    if (begin(writer, step, 500)) writer.stable(step++);
    std::this_thread::sleep_for(100us);
  }
}

/// The last step that came through the pipe, of so many at most.
std::uint64_t last_reported(int from, std::uint64_t before, int most = INT_MAX) {
  auto last = before;
  std::uint64_t step = 0;
  for (int i = 0; i < most && read(from, &step, sizeof(step)) == sizeof(step); ++i) last = step;
  return last;
}

TEST(CheckpointKill, LeavesTheLastGoodOneAtAnyInstant) {
  TempFolder dir;
  auto seed = env("PLIANT_TEST_SEED") ? std::stoull(*env("PLIANT_TEST_SEED")) : random_u64();
  SCOPED_TRACE("repeat with PLIANT_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  SteadyClock clock;
  auto began = clock.now();
  write_step(dir.path(), 0, 500).or_throw();
  // A slow machine takes longer for a checkpoint: when a writer is killed is counted in what it has written.
  auto takes = clock.now() - began;
  std::uint64_t reported = 0;
  int drafts_seen = 0;
  for (int turn = 0; turn < 50; ++turn) {
    auto first = newest_checkpoint(dir.path()).or_throw().position.step;
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Fd from(ends[0]), to(ends[1]);
    bool in_background = turn % 3 == 2;
    auto child = fork();
    if (child == 0 && in_background) write_in_background_for_ever(dir.path(), first);
    if (child == 0) write_for_ever(dir.path(), first, to.get());
    to.reset();
    int writes = turn % 4;  // before the one in which it is killed
    reported = last_reported(from.get(), reported, in_background ? 0 : writes);
    auto instant = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(takes.count()));
    std::this_thread::sleep_for(Nanos(instant) + (in_background ? writes * takes : Nanos(0)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself: " << WEXITSTATUS(status);
    reported = last_reported(from.get(), reported);
    for (const auto& name : names_in(dir.path())) drafts_seen += name.starts_with(".tmp-");
    auto newest = newest_checkpoint(dir.path()).or_throw();
    ASSERT_TRUE(is_as_written(newest, 500));
    ASSERT_GE(newest.position.step, reported) << "what was reported is on the disk";
    for (auto step : steps_in(dir.path()))
      ASSERT_TRUE(is_as_written(read_checkpoint(folder_of_step(dir.path(), step)).or_throw(), 500));
    prune_checkpoints(dir.path(), 2);
    auto names = names_in(dir.path());
    ASSERT_LE(names.size(), 2U);
    for (const auto& name : names) ASSERT_TRUE(name.starts_with("step-")) << name;
  }
  EXPECT_GT(reported, 0U);
  RecordProperty("drafts_left_by_kills", drafts_seen);
}

}  // namespace
}  // namespace pliant::session
