#include "net/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
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
  auto what = fmt::format("shared memory '{}' of {}", name, format_bytes(bytes));
  Fd fd(memfd_create(("pliant:" + name).substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return errno_error(what);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return errno_error(what);
  if (backing == Backing::sparse) return fd;
  // Of what cannot be had the kernel would hand out pages until it must kill somebody for them. All else is asked of
  // it.
  if (auto available = available_memory(); bytes > available)
    return Error{Code::io, fmt::format("{}: only {} of memory are available", what, format_bytes(available))};
  int failed = 0;
  do failed = fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0 ? errno : 0;
  while (failed == EINTR);
  if (failed) return errno_error(what, failed);
  return fd;
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
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd.get(), 0);
  if (at == MAP_FAILED) return errno_error("mapping shared memory '" + name + "'");
  segment.memory = Mapping(at, bytes);
  if (backing == Backing::reserved) populate(segment.memory.data(), bytes);
  PLIANT_TRY(seal_memory(segment.fd));
  return segment;
}

Status check_segment(const Fd& fd, std::size_t bytes) {
  int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return Error{Code::protocol, "a segment that is not sealed"};
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return errno_error("segment");
  if (info.st_size < 0 || static_cast<std::size_t>(info.st_size) != bytes)
    return Error{Code::protocol, fmt::format("a segment of {} bytes instead of {}", info.st_size, bytes)};
  return {};
}

Result<Mapping> map_segment(const Fd& fd, std::size_t bytes, Backing backing) {
  PLIANT_TRY(check_segment(fd, bytes));
  void* at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return errno_error("mapping a segment");
  Mapping mapping(at, bytes);
  if (backing == Backing::reserved) populate(mapping.data(), bytes);
  return mapping;
}

Result<Mapping> reserve_addresses(std::size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return errno_error("reserving addresses");
  return Mapping(at, bytes);
}

Status map_into(std::byte* at, const Fd& fd, std::size_t offset, std::size_t bytes, bool writable) {
  int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* got = mmap(at, bytes, protection, MAP_SHARED | MAP_FIXED, fd.get(), static_cast<off_t>(offset));
  if (got == MAP_FAILED) return errno_error("mapping a slice");
  populate(at, bytes);
  return {};
}

}  // namespace pliant::net
