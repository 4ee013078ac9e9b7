#include "base/system.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/result.h"

namespace pliant {
namespace {

TEST(System, UsableCoresFollowTheAffinity) {
  EXPECT_GE(usable_cores(), 1);
  int pinned = 0;
  std::thread([&] {  // affinity belongs to a thread: the test's own stays as it is
    cpu_set_t mine;
    sched_getaffinity(0, sizeof(mine), &mine);
    int first = 0;
    while (!CPU_ISSET(first, &mine)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    sched_setaffinity(0, sizeof(one), &one);
    pinned = usable_cores();
  })
      .join();
  EXPECT_EQ(pinned, 1);
}

TEST(System, AProcessHasAStartTime) {
  auto mine = start_time_of(getpid());
  ASSERT_TRUE(mine.has_value());
  EXPECT_EQ(mine, start_time_of(getpid()));
  EXPECT_FALSE(start_time_of(0x7ffffff0).has_value());
}

TEST(System, ProcessesThatShareMemoryAreOfOneHost) {
  auto here = host_identity();
  EXPECT_EQ(here.find(host_name() + "-"), 0U) << here;
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  for (bool elsewhere : {false, true}) {
    pid_t child = fork();
    if (child == 0) {
      if (elsewhere && unshare(CLONE_NEWNET) != 0) _exit(77);
      auto identity = host_identity();
      _exit(write(ends[1], identity.data(), identity.size()) < 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no other network can be made here";
    std::array<char, 256> text{};
    ASSERT_GT(read(ends[0], text.data(), text.size() - 1), 0);
    EXPECT_EQ(here == text.data(), !elsewhere) << text.data();
  }
  close(ends[0]);
  close(ends[1]);
}

TEST(System, SomeMemoryIsAvailable) {
  EXPECT_GT(available_memory(), 1U << 20);
  EXPECT_LT(available_memory(), std::uint64_t{1} << 50);
}

/// A folder as the kernel shows a cgroup.
class FakeCgroup {
 public:
  FakeCgroup() {
    std::string path = testing::TempDir() + "cgroup-XXXXXX";
    folder_ = mkdtemp(path.data());
  }
  ~FakeCgroup() { std::filesystem::remove_all(folder_); }
  void write(const std::string& file, const std::string& text) const { std::ofstream(folder_ + "/" + file) << text; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

TEST(System, PageCacheOfACgroupCountsAsFree) {
  FakeCgroup group;
  EXPECT_FALSE(memory_left_in(group.folder(), true).has_value());
  group.write("memory.max", "1000000\n");
  group.write("memory.current", "990000\n");
  EXPECT_EQ(memory_left_in(group.folder(), true), 10'000U);
  group.write("memory.stat", "anon 90000\nfile 900000\nshmem 200000\ninactive_file 400000\nactive_file 300000\n");
  EXPECT_EQ(memory_left_in(group.folder(), true), 710'000U);
  group.write("memory.current", "1200000\n");  // for a moment it may have more than its limit
  EXPECT_EQ(memory_left_in(group.folder(), true), 500'000U);
  group.write("memory.max", "max\n");
  EXPECT_FALSE(memory_left_in(group.folder(), true).has_value());

  group.write("memory.limit_in_bytes", "1000000\n");
  group.write("memory.usage_in_bytes", "1000000\n");
  EXPECT_EQ(memory_left_in(group.folder(), false), 0U);
  group.write("memory.stat", "inactive_file 1\nactive_file 2\ntotal_inactive_file 500000\ntotal_active_file 300000\n");
  EXPECT_EQ(memory_left_in(group.folder(), false), 800'000U);
}

TEST(System, RandomNumbersDiffer) { EXPECT_NE(random_u64(), random_u64()); }

TEST(Result, CarriesAValueOrAnError) {
  Result<int> good(3);
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(std::move(good).or_throw(), 3);
  Result<int> bad(Error{Code::peer_lost, "gone"});
  EXPECT_FALSE(bad.ok());
  try {
    std::move(bad).or_throw();
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), Code::peer_lost);
    EXPECT_STREQ(failure.what(), "gone");
  }
  EXPECT_EQ(errno_error("open x", ENOENT).code, Code::not_found);
  EXPECT_EQ(errno_error("open x", EACCES).code, Code::io);
}

TEST(Clock, AManualClockMovesOnlyWhenTold) {
  ManualClock clock;
  EXPECT_EQ(clock.now(), Nanos(0));
  clock.advance(std::chrono::seconds(2));
  EXPECT_DOUBLE_EQ(seconds(clock.now()), 2);
}

}  // namespace
}  // namespace pliant
