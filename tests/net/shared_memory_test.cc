#include "net/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/system.h"

namespace pliant::net {
namespace {

TEST(Segment, ReadersSeeWhatTheWriterWrites) {
  auto own = create_segment("test", 2 * kPage, Backing::reserved).or_throw();
  auto reader = map_segment(own.fd, 2 * kPage).or_throw();
  std::memcpy(own.memory.data() + kPage, "hello", 5);
  EXPECT_EQ(std::memcmp(reader.data() + kPage, "hello", 5), 0);
}

TEST(Segment, NobodyElseCanEverWriteIt) {
  auto own = create_segment("test", kPage, Backing::sparse).or_throw();
  EXPECT_EQ(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, own.fd.get(), 0), MAP_FAILED);
  EXPECT_EQ(::write(own.fd.get(), "x", 1), -1);
  EXPECT_NE(ftruncate(own.fd.get(), 0), 0);
  EXPECT_NE(ftruncate(own.fd.get(), 2 * kPage), 0);
  // Not even by opening it anew, as its user.
  auto path = "/proc/self/fd/" + std::to_string(own.fd.get());
  Fd again(open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(again);
  EXPECT_EQ(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
  auto reader = map_segment(own.fd, kPage).or_throw();
  EXPECT_NE(mprotect(reader.data(), kPage, PROT_READ | PROT_WRITE), 0);
}

TEST(Segment, StrangersDescriptorsAreRefused) {
  auto own = create_segment("test", kPage, Backing::sparse).or_throw();
  EXPECT_FALSE(map_segment(own.fd, 2 * kPage).ok());  // another size than announced
  Fd unsealed(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kPage), 0);
  EXPECT_FALSE(map_segment(unsealed, kPage).ok());  // it could be cut under our feet
  Fd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(map_segment(file, kPage).ok());
}

TEST(Segment, TooMuchIsAnErrorAndNotASignal) {
  auto created = create_segment("huge", available_memory() + (std::size_t{64} << 30), Backing::reserved);
  ASSERT_FALSE(created.ok());
  EXPECT_NE(created.error().message.find("'huge'"), std::string::npos) << created.error().message;
  EXPECT_NE(created.error().message.find("available"), std::string::npos) << created.error().message;
}

TEST(Segment, PiecesLieSideBySide) {
  auto a = create_memory("a", 2 * kPage, Backing::reserved).or_throw();
  auto b = create_segment("b", kPage, Backing::reserved).or_throw();
  auto space = reserve_addresses(3 * kPage).or_throw();
  ASSERT_TRUE(map_into(space.data(), a, kPage, kPage, true).ok());
  ASSERT_TRUE(map_into(space.data() + kPage, b.fd, 0, kPage, false).ok());
  ASSERT_TRUE(map_into(space.data() + 2 * kPage, a, 0, kPage, true).ok());
  ASSERT_TRUE(seal_memory(a).ok());
  std::memset(space.data(), 'x', kPage);
  std::memset(space.data() + 2 * kPage, 'z', kPage);
  std::memset(b.memory.data(), 'y', kPage);
  auto reader = map_segment(a, 2 * kPage).or_throw();
  EXPECT_EQ(static_cast<char>(reader.data()[0]), 'z');
  EXPECT_EQ(static_cast<char>(reader.data()[kPage]), 'x');
  EXPECT_EQ(static_cast<char>(space.data()[kPage]), 'y');
}

bool is_zero(const std::byte* at, std::size_t bytes) {
  return std::all_of(at, at + bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

TEST(Segment, LargeOnesBeginAtAHugePageAndAreEmpty) {
  constexpr std::size_t kBytes = 3 * kHugePage + 5 * kPage;
  auto own = create_segment("large", kBytes, Backing::reserved).or_throw();
  auto reader = map_segment(own.fd, kBytes, Backing::reserved).or_throw();
  for (const auto* at : {own.memory.data(), reader.data()}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % kHugePage, 0U);
    EXPECT_TRUE(is_zero(at, kBytes));
  }
  std::memset(own.memory.data(), 'x', kBytes);
  EXPECT_EQ(std::memcmp(own.memory.data(), reader.data(), kBytes), 0);
}

TEST(Segment, CanBeFilledPieceByPiece) {
  constexpr std::size_t kBytes = 4 * kHugePage + kPage;
  auto memory = create_memory("pieces", kBytes, Backing::sparse).or_throw();
  auto blocks = [&] {
    struct stat info {};
    fstat(memory.get(), &info);
    return static_cast<std::size_t>(info.st_blocks) * 512;
  };
  ASSERT_TRUE(fill_memory(memory, 0, 2 * kHugePage, Backing::cleared).ok());
  EXPECT_EQ(blocks(), 2 * kHugePage);
  ASSERT_TRUE(fill_memory(memory, 2 * kHugePage, 2 * kHugePage + kPage, Backing::reserved).ok());
  EXPECT_EQ(blocks(), kBytes);
  ASSERT_TRUE(fill_memory(memory, 0, kBytes, Backing::reserved).ok());
  EXPECT_EQ(blocks(), kBytes);
  ASSERT_TRUE(seal_memory(memory).ok());
  EXPECT_TRUE(check_segment(memory, kBytes).ok());
  EXPECT_TRUE(check_segment(memory, kPage).ok());
  EXPECT_FALSE(check_segment(memory, kBytes + kPage).ok());
  auto reader = map_segment(memory, kBytes).or_throw();
  EXPECT_TRUE(is_zero(reader.data(), kBytes));
}

/// What the kernel says of the mapping at `at`, in KiB.
std::size_t mapped_in_huge_pages(const std::byte* at) {
  std::ifstream maps("/proc/self/smaps");
  auto begin = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(at));
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(begin)) here = true;
    if (here && line.starts_with("ShmemPmdMapped:")) return std::stoull(line.substr(15));
  }
  return 0;
}

TEST(Segment, LargeOnesAreHugePagesWhereTheKernelHasThem) {
  struct utsname kernel {};
  uname(&kernel);
  int major = 0, minor = 0;
  std::sscanf(kernel.release, "%d.%d", &major, &minor);
  std::string allowed;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/shmem_enabled"), allowed);
  bool denied = allowed.empty() || allowed.find("[deny]") != std::string::npos;
  if (denied || std::pair(major, minor) < std::pair(6, 1)) GTEST_SKIP() << "not on this kernel";
  auto own = create_segment("large", 4 * kHugePage, Backing::reserved).or_throw();
  auto reader = map_segment(own.fd, 4 * kHugePage, Backing::reserved).or_throw();
  if (mapped_in_huge_pages(own.memory.data()) == 0) GTEST_SKIP() << "this kernel has none to give";
  EXPECT_EQ(mapped_in_huge_pages(own.memory.data()), mapped_in_huge_pages(reader.data()));
}

/// What a child in a memory cgroup (v1) of 64 MiB, full of page cache, makes of segments: its exit status, or 77 if
/// there can be none.
int allocate_in_full_cgroup(const std::string& cgroup, const std::string& file) {
  auto say = [](const std::string& path, const std::string& text) {
    return static_cast<bool>(std::ofstream(path) << text << std::flush);
  };
  if (!say(cgroup + "/memory.limit_in_bytes", "67108864") || !say(cgroup + "/cgroup.procs", std::to_string(getpid())))
    return 77;
  std::ofstream out(file);
  std::string block(1 << 20, 'x');
  for (int i = 0; i < 200; ++i) out << block;
  out.close();
  std::string used;
  std::ifstream(cgroup + "/memory.usage_in_bytes") >> used;
  if (std::stoull(used) < (60U << 20)) return 77;  // nothing is cached here
  if (!create_segment("fits", 16 << 20, Backing::reserved).ok()) return 1;
  auto huge = create_segment("huge", 256 << 20, Backing::reserved);
  if (huge.ok() || huge.error().message.find("available") == std::string::npos) return 2;
  return 0;
}

TEST(Segment, ACgroupFullOfPageCacheHasRoom) {
  auto cgroup = "/sys/fs/cgroup/memory/pliant-test-" + std::to_string(getpid());
  std::error_code problem;
  if (!std::filesystem::create_directory(cgroup, problem)) GTEST_SKIP() << "no memory cgroup can be made here";
  auto file = testing::TempDir() + "cache-" + std::to_string(getpid());
  pid_t child = fork();
  if (child == 0) _exit(allocate_in_full_cgroup(cgroup, file));
  int status = 0;
  waitpid(child, &status, 0);
  std::filesystem::remove(file, problem);
  while (rmdir(cgroup.c_str()) != 0 && errno == EBUSY) usleep(1000);  // until the kernel has let go of the child
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no page cache is counted here";
  EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace pliant::net
