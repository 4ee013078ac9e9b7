// Shared memory with one writer per segment. Segments are memfds that travel over sockets: when the last process
// that holds one is gone, so is the memory, whatever killed it.
#pragma once

#include <cstddef>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace pliant::net {

inline constexpr std::size_t kPage = 4096;
/// Memory of at least this size is made of pages of this size where the kernel has them to give: what a change of view
/// takes is then almost independent of how much memory it maps and unmaps.
inline constexpr std::size_t kHugePage = 2 << 20;
constexpr std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

/// A piece of address space. Destroying it unmaps.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* at, std::size_t bytes) : at_(static_cast<std::byte*>(at)), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return at_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* at_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The writer's end. The kernel refuses any further writable mapping, resizing or write() of it, so a reader cannot
/// change a byte even on purpose.
struct OwnSegment {
  Fd fd;
  Mapping memory;
};

enum class Backing {
  reserved,  ///< pages are there before the call returns; too little memory is an error now, not a signal later
  cleared,   ///< the same, and nothing is left to be done when they are touched first; to be made beforehand
  sparse,    ///< pages come when touched
};
Result<OwnSegment> create_segment(const std::string& name, std::size_t bytes, Backing backing);
/// The same in two steps, for a writer that maps it piece by piece before it seals.
Result<Fd> create_memory(const std::string& name, std::size_t bytes, Backing backing);
/// What `backing` promises, for a part of sparse memory that is not sealed: whoever has time makes it piece by piece.
/// `offset` is a multiple of kHugePage.
Status fill_memory(const Fd& fd, std::size_t offset, std::size_t bytes, Backing backing);
/// Gives back what is behind the first `bytes`. REQUIRES: nobody else touches that, and it is not sealed.
Status cut_memory(const Fd& fd, std::size_t bytes);
Status seal_memory(const Fd& fd);

/// A reader's end: maps `fd` read-only after checking that it is a sealed memfd of exactly `bytes`.
Result<Mapping> map_segment(const Fd& fd, std::size_t bytes, Backing backing = Backing::sparse);
/// The same checks without mapping; the segment may be larger.
Status check_segment(const Fd& fd, std::size_t bytes);

/// Address space with nothing in it yet, to be filled piece by piece with `map_into`. It begins at a multiple of
/// kHugePage if there is room for one: only where addresses and offsets differ by such multiples are huge pages mapped
/// as what they are.
Result<Mapping> reserve_addresses(std::size_t bytes);
/// Maps [offset, offset + bytes) of a segment at `at`, over reserved addresses, with its pages: the first use of the
/// memory shall not be slower than the others. All page-aligned.
Status map_into(std::byte* at, const Fd& fd, std::size_t offset, std::size_t bytes, bool writable);

}  // namespace pliant::net
