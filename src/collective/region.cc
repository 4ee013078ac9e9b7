#include "collective/region.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace pliant::collective {
namespace {

constexpr std::size_t kSparesFrom = 4 * net::kHugePage;  // less is made as fast as it is looked for

/// Where a rank's stripes of a result begin in its segment. Huge stripes stay on boundaries of huge pages, although the
/// last stripe of a result may be cut short.
std::size_t slices_offset(const Stripes& stripes, int rank, int which) {
  auto step = stripes.stripe % net::kHugePage == 0 ? net::kHugePage : kPage;
  return round_up(stripes.owned(rank), step) * static_cast<std::size_t>(which);
}

/// A rank that owns no stripe still sends a segment, of one page: one rule for all.
std::size_t slices_bytes(const Stripes& stripes, int rank, int results) {
  return std::max(slices_offset(stripes, rank, results), kPage);
}

}  // namespace

Result<std::shared_ptr<SharedRegion>> SharedRegion::create(std::string name, std::size_t bytes, int ranks, int rank,
                                                           int results, const Input& input, int sharers) {
  if (bytes == 0) return Error{Code::invalid, fmt::format("region '{}' has no bytes", name)};
  std::shared_ptr<SharedRegion> region(new SharedRegion);
  region->name_ = std::move(name);
  region->ranks_ = ranks;
  region->rank_ = rank;
  region->stripes_ = stripes_for(bytes, ranks, sharers);
  region->bytes_ = region->stripes_.bytes;
  region->results_ = results;
  region->one_host_ = sharers <= ranks;
  region->missing_ = ranks - 1;
  PLIANT_TRY(region->take_input(input));
  if (std::max(ranks, sharers) == 1) return region;

  auto slices = region->slices_memory();
  if (!slices.ok()) return slices.error();
  region->slices_ = std::move(slices).value();
  region->peers_.resize(static_cast<std::size_t>(ranks));
  for (int i = 0; i < results; ++i) {
    auto space = net::reserve_addresses(region->bytes_);
    if (!space.ok()) return space.error();
    region->results_at_.push_back(std::move(space).value());
  }
  PLIANT_TRY(region->stitch(rank, region->slices_, true));
  PLIANT_TRY(net::seal_memory(region->slices_));  // from here on nobody else can map them writable
  return region;
}

SharedRegion::~SharedRegion() {
  if (all_) all_->fetch_sub(bytes_, std::memory_order_relaxed);
}

void SharedRegion::count_among(Tally all) {
  all_ = std::move(all);
  all_->fetch_add(bytes_, std::memory_order_relaxed);
}

Status SharedRegion::take_input(const Input& input) {
  auto before = std::dynamic_pointer_cast<Segment>(input);
  if (before && before->segment.memory.size() == bytes_) {
    input_ = std::move(before);
    return {};
  }
  auto made = net::create_segment(name_, bytes_, net::Backing::reserved);
  if (!made.ok()) return made.error();
  input_ = std::make_shared<Segment>(std::move(made).value());
  return {};
}

Result<Fd> SharedRegion::slices_memory() {
  auto bytes = slices_bytes(stripes_, rank_, results_);
  auto spare = input_->spare.take(bytes);
  if (!spare.memory) return net::create_memory(name_ + ":result", bytes, net::Backing::reserved);
  if (spare.whole())
    PLIANT_TRY(net::cut_memory(spare.memory, bytes));
  else if (spare.filled < bytes)
    PLIANT_TRY(net::fill_memory(spare.memory, spare.filled, bytes - spare.filled, net::Backing::reserved));
  return std::move(spare.memory);
}

/// Enough for the slices of any rank in a view with one more or one less on this host. Alone on the only host nobody
/// needs any.
std::size_t SharedRegion::spare_bytes() const {
  int fewest = std::max(ranks_ - 1, one_host_ ? 2 : 1);
  auto share = bytes_ / static_cast<std::size_t>(fewest) + std::max(stripes_.stripe, net::kHugePage);
  return round_up(share, net::kHugePage) * static_cast<std::size_t>(results_);
}

void SharedRegion::make_spare(const std::stop_token& stop) {
  if (bytes_ >= kSparesFrom) input_->spare.make(name_ + ":spare", spare_bytes(), stop);
}

Status SharedRegion::stitch(int rank, const Fd& slices, bool writable) {
  for (int which = 0; which < results_; ++which) {
    auto offset = slices_offset(stripes_, rank, which);
    for (auto index = static_cast<std::size_t>(rank); index < stripes_.count(); index += stripes_.ranks) {
      auto at = index * stripes_.stripe;
      auto size = std::min(stripes_.stripe, stripes_.bytes - at);
      PLIANT_TRY(net::map_into(results_at_[which].data() + at, slices, offset, size, writable));
      offset += size;
    }
  }
  return {};
}

Status SharedRegion::add_peer(int rank, const wire::RegionNotice& notice, const std::vector<Fd>& fds) {
  if (notice.bytes != bytes_ || notice.stripe != stripes_.stripe || static_cast<int>(notice.results) != results_)
    return Error{Code::mismatch, fmt::format("region '{}' has {} bytes here and {} bytes on rank {}", name_, bytes_,
                                             notice.bytes, rank)};
  if (fds.size() != 2) return Error{Code::protocol, fmt::format("region '{}' came without its memory", name_)};
  PLIANT_TRY(net::check_segment(fds[1], slices_bytes(stripes_, rank, results_)));
  auto input = net::map_segment(fds[0], bytes_, net::Backing::reserved);
  if (!input.ok()) return input.error();
  peers_[rank] = std::move(input).value();
  PLIANT_TRY(stitch(rank, fds[1], false));
  missing_.fetch_sub(1, std::memory_order_acq_rel);
  return {};
}

void SharedRegion::close_descriptors() {
  input_->segment.fd.reset();
  slices_.reset();
}

wire::RegionNotice SharedRegion::notice() const {
  return {0, name_, bytes_, stripes_.stripe, static_cast<std::uint32_t>(results_), 0};
}

}  // namespace pliant::collective
