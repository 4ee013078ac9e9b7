// Registered memory: each rank's input in its own segment, and results that all ranks of the host share, stitched
// together page by page from slices in their owners' segments.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/plan.h"
#include "net/shared_memory.h"
#include "wire/messages.h"

namespace pliant::collective {

/// Threads: input() belongs to the user. add_peer() is called by one thread at a time; once ready() is true,
/// everything may be read by all.
class Region {
 public:
  /// Memory for one rank's contributions. Only its owner can write it, so it may serve one region after the other.
  using Input = std::shared_ptr<net::OwnSegment>;

  /// `results` buffers alternate from use to use. A region of a team of one has no results: its input is the result.
  /// `input` is that of a region that is not used any more, or empty. `ranks` and `rank` count those of this host; if
  /// there are others, a result is divided by `sharers` in all.
  static Result<std::shared_ptr<Region>> create(std::string name, std::size_t bytes, int ranks, int rank, int results,
                                                Input input = nullptr, int sharers = 0);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const std::string& name() const { return name_; }
  std::size_t bytes() const { return bytes_; }
  const Stripes& stripes() const { return stripes_; }
  int results() const { return results_; }

  std::byte* input() { return input_->memory.data(); }
  const std::byte* input_of(int rank) const { return rank == rank_ ? input_->memory.data() : peers_[rank].data(); }
  const Input& input_memory() const { return input_; }
  /// Contiguous; writable only where this rank owns the stripe.
  std::byte* result(int which) { return results_at_.empty() ? input() : results_at_[which].data(); }

  /// True once every peer's segments are mapped.
  bool ready() const { return missing_.load(std::memory_order_acquire) == 0; }
  Status add_peer(int rank, const wire::RegionNotice& notice, const std::vector<Fd>& fds);
  /// For the peers; the view is the sender's to fill in.
  wire::RegionNotice notice() const;
  std::vector<int> descriptors() const { return {input_->fd.get(), slices_.get()}; }

 private:
  Region() = default;
  Status take_input(Input input);
  Status stitch(int rank, const Fd& slices, bool writable);

  std::string name_;
  std::size_t bytes_ = 0;  // of the input, whole pages
  int ranks_ = 1, rank_ = 0, results_ = 0;
  Stripes stripes_;
  Input input_;
  Fd slices_;  // this rank's stripes of every result, one result behind the other
  std::vector<net::Mapping> peers_;
  std::vector<net::Mapping> results_at_;
  std::atomic<int> missing_{0};
};

}  // namespace pliant::collective
