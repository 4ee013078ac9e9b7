#include "net/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/bytes.h"
#include "base/system.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace pliant::net {
namespace {

constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, since Linux 5.14
constexpr int kCollapse = 25;      // MADV_COLLAPSE, since Linux 6.1
constexpr std::size_t kPopulateAtOnce = 4 << 20;

/// Maps the pages of memory that exist, so that the first use is as fast as any. A few at a time: while the kernel does
/// so, no other thread of this process can map or unmap anything, and whoever waits for that keeps page faults waiting.
void populate(std::byte* at, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes; done += kPopulateAtOnce) {
    auto part = std::min(kPopulateAtOnce, bytes - done);
    int failed = 0;
    do failed = madvise(at + done, part, kPopulateRead) != 0 ? errno : 0;
    while (failed == EINTR || failed == EAGAIN);
    if (!failed) continue;
    for (std::size_t page = 0; page < part; page += kPage)
      [[maybe_unused]] auto touched = *reinterpret_cast<const volatile char*>(at + done + page);
  }
}

/// 0, or what has failed.
int allocate(const Fd& fd, std::size_t offset, std::size_t bytes) {
  int failed = 0;
  do failed = fallocate(fd.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0 ? errno : 0;
  while (failed == EINTR);
  return failed;
}

/// Makes huge pages of what is mapped at `at`, as far as the kernel can: it needs one small page of each to begin with.
/// Unlike other ways to ask for them this one needs no leave of the machine's administrator, unless that denied it.
int allocate_huge(const Fd& fd, std::byte* at, std::size_t offset, std::size_t bytes) {
  for (std::size_t page = 0; page + kHugePage <= bytes; page += kHugePage)
    if (int failed = allocate(fd, offset + page, kPage)) return failed;
  madvise(at, bytes / kHugePage * kHugePage, kCollapse);  // what it could not do is done in small pages
  return 0;
}

Status check_seals(const Fd& fd, std::size_t& bytes) {
  int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return Error{Code::protocol, "a segment that is not sealed"};
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return errno_error("segment");
  bytes = static_cast<std::size_t>(std::max<off_t>(info.st_size, 0));
  return {};
}

Error wrong_size(std::size_t there, std::size_t wanted) {
  return {Code::protocol, fmt::format("a segment of {} bytes instead of {}", there, wanted)};
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : at_(std::exchange(other.at_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(at_, other.at_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (at_) munmap(at_, bytes_);
}

Result<Fd> create_memory(const std::string& name, std::size_t bytes, Backing backing) {
  auto what = [&] { return fmt::format("shared memory '{}' of {}", name, format_bytes(bytes)); };
  Fd fd(memfd_create(("pliant:" + name).substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return errno_error(what());
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return errno_error(what());
  auto filled = fill_memory(fd, 0, bytes, backing);
  if (!filled.ok()) return Error{filled.error().code, what() + ": " + filled.error().message};
  return fd;
}

Status fill_memory(const Fd& fd, std::size_t offset, std::size_t bytes, Backing backing) {
  if (backing == Backing::sparse || bytes == 0) return {};
  // Of what cannot be had the kernel would hand out pages until it must kill somebody for them. All else is asked of
  // it. To ask for what is there takes longer than to make a small piece.
  if (auto available = bytes < kHugePage ? UINT64_MAX : available_memory(); bytes > available)
    return Error{Code::io, fmt::format("only {} of memory are available", format_bytes(available))};
  Mapping window;
  int failed = 0;
  if (bytes >= kHugePage || backing == Backing::cleared) {
    auto space = reserve_addresses(bytes);
    if (!space.ok()) return space.error();
    window = std::move(space).value();
    if (mmap(window.data(), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(),
             static_cast<off_t>(offset)) == MAP_FAILED)
      return errno_error("mapping it");
    failed = allocate_huge(fd, window.data(), offset, bytes);
  }
  if (!failed) failed = allocate(fd, offset, bytes);
  if (failed) return errno_error("making it", failed);
  if (backing == Backing::cleared) populate(window.data(), bytes);
  return {};
}

Status cut_memory(const Fd& fd, std::size_t bytes) {
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return errno_error("cutting shared memory");
  return {};
}

Status seal_memory(const Fd& fd) {
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return errno_error("sealing shared memory");
  return {};
}

Result<OwnSegment> create_segment(const std::string& name, std::size_t bytes, Backing backing) {
  auto fd = create_memory(name, bytes, backing);
  if (!fd.ok()) return fd.error();
  OwnSegment segment;
  segment.fd = std::move(fd).value();
  auto space = reserve_addresses(bytes);
  if (!space.ok()) return space.error();
  segment.memory = std::move(space).value();
  if (mmap(segment.memory.data(), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, segment.fd.get(), 0) ==
      MAP_FAILED)
    return errno_error("mapping shared memory '" + name + "'");
  if (backing != Backing::sparse) populate(segment.memory.data(), bytes);
  PLIANT_TRY(seal_memory(segment.fd));
  return segment;
}

Status check_segment(const Fd& fd, std::size_t bytes) {
  std::size_t there = 0;
  PLIANT_TRY(check_seals(fd, there));
  if (there < bytes) return wrong_size(there, bytes);
  return {};
}

Result<Mapping> map_segment(const Fd& fd, std::size_t bytes, Backing backing) {
  std::size_t there = 0;
  PLIANT_TRY(check_seals(fd, there));
  if (there != bytes) return wrong_size(there, bytes);
  auto space = reserve_addresses(bytes);
  if (!space.ok()) return space;
  auto mapping = std::move(space).value();
  if (mmap(mapping.data(), bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd.get(), 0) == MAP_FAILED)
    return errno_error("mapping a segment");
  if (backing != Backing::sparse) populate(mapping.data(), bytes);
  return mapping;
}

Result<Mapping> reserve_addresses(std::size_t bytes) {
  auto more = bytes >= kHugePage ? kHugePage : 0;
  void* at = mmap(nullptr, bytes + more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return errno_error("reserving addresses");
  if (!more) return Mapping(at, bytes);
  auto* first = static_cast<std::byte*>(at);
  auto* begin = first + (kHugePage - reinterpret_cast<std::uintptr_t>(first) % kHugePage) % kHugePage;
  auto* end = begin + round_up(bytes, kPage);
  auto* last = first + round_up(bytes + more, kPage);
  if (begin > first) munmap(first, static_cast<std::size_t>(begin - first));
  if (last > end) munmap(end, static_cast<std::size_t>(last - end));
  return Mapping(begin, bytes);
}

Status map_into(std::byte* at, const Fd& fd, std::size_t offset, std::size_t bytes, bool writable) {
  int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* got = mmap(at, bytes, protection, MAP_SHARED | MAP_FIXED, fd.get(), static_cast<off_t>(offset));
  if (got == MAP_FAILED) return errno_error("mapping a slice");
  populate(at, bytes);
  return {};
}

}  // namespace pliant::net
