#include "collective/region.h"

#include <fmt/format.h>

#include <algorithm>

namespace pliant::collective {
namespace {

/// A rank that owns no stripe still sends a segment, of one page: one rule for all.
std::size_t slices_bytes(const Stripes& stripes, int rank, int results) {
  return std::max(stripes.owned(rank) * static_cast<std::size_t>(results), kPage);
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
  region->missing_ = ranks - 1;
  PLIANT_TRY(region->take_input(input));
  if (std::max(ranks, sharers) == 1) return region;

  auto slices = net::create_memory(region->name_ + ":result", slices_bytes(region->stripes_, rank, results),
                                   net::Backing::reserved);
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

Status SharedRegion::stitch(int rank, const Fd& slices, bool writable) {
  for (int which = 0; which < results_; ++which) {
    auto offset = stripes_.owned(rank) * static_cast<std::size_t>(which);
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
