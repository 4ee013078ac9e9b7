// Registered memory: each rank's input in its own segment, and results that all ranks of the host share, stitched
// together page by page from slices in their owners' segments.
#pragma once

#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/plan.h"
#include "collective/spare_memory.h"
#include "net/shared_memory.h"
#include "wire/messages.h"

namespace pliant::collective {

/// Memory for one rank's contributions. Only its owner can write it, so it may serve one region after the other.
class InputMemory {
 public:
  virtual ~InputMemory() = default;
};

/// Registered memory as its users see it: shared between processes, or a twin of that in a simulation.
class Region {
 public:
  using Input = std::shared_ptr<InputMemory>;

  virtual ~Region() = default;
  virtual std::size_t bytes() const = 0;
  virtual std::byte* input() = 0;
  /// The input of the rank at `place` of this host. REQUIRES ready().
  virtual const std::byte* input_of(int place) const = 0;
  /// Where the results of uses with that parity are; `which` is 0 or 1.
  virtual std::byte* result(int which) = 0;
  /// For a region of a later view.
  virtual Input input_memory() const = 0;
  /// Makes beforehand what a region of a later view, of one rank more or less, needs for its results here, unless it is
  /// there; whoever is given input_memory() finds it. Takes long. Where memory is short, nothing is made, and the later
  /// region makes its own. From any thread.
  virtual void make_spare(const std::stop_token& /*stop*/) {}
  /// True once every neighbour's memory can be read.
  virtual bool ready() const = 0;
};

/// Threads: input() belongs to the user. add_peer() is called by one thread at a time; once ready() is true,
/// everything may be read by all.
class SharedRegion final : public Region {
 public:
  /// `results` buffers alternate from use to use. A region of a team of one has no results: its input is the result.
  /// `input` is that of a region that is not used any more, or empty. `ranks` and `rank` count those of this host; if
  /// there are others, a result is divided by `sharers` in all.
  static Result<std::shared_ptr<SharedRegion>> create(std::string name, std::size_t bytes, int ranks, int rank,
                                                      int results, const Input& input = nullptr, int sharers = 0);
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;
  ~SharedRegion() override;

  const std::string& name() const { return name_; }
  std::size_t bytes() const override { return bytes_; }
  /// Adds its bytes to those of all regions of a group, as long as it lives.
  using Tally = std::shared_ptr<std::atomic<std::size_t>>;
  void count_among(Tally all);
  /// Of all regions that it is counted among: what a loop over them touches.
  std::size_t bytes_in_all() const { return all_ ? all_->load(std::memory_order_relaxed) : bytes_; }
  const Stripes& stripes() const { return stripes_; }
  int results() const { return results_; }

  std::byte* input() override { return input_->segment.memory.data(); }
  const std::byte* input_of(int place) const override {
    return place == rank_ ? input_->segment.memory.data() : peers_[place].data();
  }
  Input input_memory() const override { return input_; }
  /// Contiguous; writable only where this rank owns the stripe.
  std::byte* result(int which) override { return results_at_.empty() ? input() : results_at_[which].data(); }

  bool ready() const override { return missing_.load(std::memory_order_acquire) == 0; }
  Status add_peer(int rank, const wire::RegionNotice& notice, const std::vector<Fd>& fds);
  /// For the peers; the view is the sender's to fill in.
  wire::RegionNotice notice() const;
  std::vector<int> descriptors() const { return {input_->segment.fd.get(), slices_.get()}; }
  void make_spare(const std::stop_token& stop) override;
  /// No peer will be given this memory any more: mappings stay, descriptors go.
  void close_descriptors();

 private:
  struct Segment final : InputMemory {
    explicit Segment(net::OwnSegment own) : segment(std::move(own)) {}
    net::OwnSegment segment;
    SpareMemory spare;
  };
  SharedRegion() = default;
  Status take_input(const Input& input);
  Result<Fd> slices_memory();
  std::size_t spare_bytes() const;
  Status stitch(int rank, const Fd& slices, bool writable);

  std::string name_;
  std::size_t bytes_ = 0;  // of the input, whole pages
  int ranks_ = 1, rank_ = 0, results_ = 0;
  bool one_host_ = true;
  Stripes stripes_;
  std::shared_ptr<Segment> input_;
  Fd slices_;  // this rank's stripes of every result, one result behind the other
  std::vector<net::Mapping> peers_;
  std::vector<net::Mapping> results_at_;
  std::atomic<int> missing_{0};
  Tally all_;
};

}  // namespace pliant::collective
