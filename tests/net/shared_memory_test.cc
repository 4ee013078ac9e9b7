#include "net/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

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

}  // namespace
}  // namespace pliant::net
