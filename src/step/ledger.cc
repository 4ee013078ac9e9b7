#include "step/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/hash.h"
#include "base/result.h"

namespace pliant::step {
namespace {

constexpr int kRounds = 6;
constexpr int kFewestHalfBits = 4;  // smaller networks favour some orders by several per cent

int half_bits_for(std::uint64_t count) {
  int half_bits = kFewestHalfBits;
  while (half_bits < 32 && count > std::uint64_t{1} << (2 * half_bits)) ++half_bits;
  return half_bits;
}

std::uint64_t total_of(const std::vector<Range>& ranges) {
  std::uint64_t total = 0;
  for (const auto& range : ranges) total += range.size();
  return total;
}

/// The positions [skip, skip + count) of `ranges` laid end to end, as far as they go.
std::vector<Range> cut(const std::vector<Range>& ranges, std::uint64_t skip, std::uint64_t count) {
  std::vector<Range> out;
  for (auto range : ranges) {
    if (count == 0) break;
    auto skipped = std::min(skip, range.size());
    skip -= skipped;
    range.begin += skipped;
    range.end = range.begin + std::min(count, range.size());
    count -= range.size();
    if (range.size() > 0) out.push_back(range);
  }
  return out;
}

}  // namespace

Order::Order(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch, bool shuffle)
    : count_(count), key_(combine(mix64(seed), epoch)), half_bits_(half_bits_for(count)), shuffle_(shuffle) {}

std::uint64_t Order::at(std::uint64_t position) const {
  PLIANT_ASSERT(position < count_);
  if (!shuffle_) return position;
  const auto mask = (std::uint64_t{1} << half_bits_) - 1;
  // A Feistel network permutes a power of four that is below 4 × count (at least 256). Walking on from results outside
  // [0, count) ends inside, because the walk is a cycle that began there.
  auto value = position;
  do {
    auto left = value >> half_bits_;
    auto right = value & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      auto next = left ^ (combine(key_ + round, right) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= count_);
  return value;
}

Result<Ledger> Ledger::restore(Snapshot snapshot) {
  auto impossible = [](std::string why) { return Error{Code::invalid, "impossible ledger: " + std::move(why)}; };
  if (snapshot.fresh > snapshot.samples)
    return impossible(fmt::format("position {} of {} samples", snapshot.fresh, snapshot.samples));
  const Range* last = nullptr;
  for (const auto& range : snapshot.returned) {
    auto text = fmt::format("returned range [{}, {})", range.begin, range.end);
    if (range.begin >= range.end) return impossible(text + " is empty");
    if (range.end > snapshot.fresh) return impossible(text + fmt::format(" beyond position {}", snapshot.fresh));
    if (last && range.begin <= last->end) return impossible(text + " is not behind the one before");
    last = &range;
  }
  Ledger ledger(snapshot.samples);
  ledger.epoch_ = snapshot.epoch;
  ledger.fresh_ = snapshot.fresh;
  ledger.returned_ = std::move(snapshot.returned);
  if (ledger.left() == 0 && ledger.samples_ > 0) return impossible("nothing is left of the epoch");
  return ledger;
}

std::uint64_t Ledger::left() const { return samples_ - fresh_ + total_of(returned_); }

std::vector<Range> Ledger::next(std::uint64_t batch) const {
  auto ranges = cut(returned_, 0, batch);
  auto wanted = std::min(batch - total_of(ranges), samples_ - fresh_);
  if (wanted == 0) return ranges;
  if (!ranges.empty() && ranges.back().end == fresh_)
    ranges.back().end += wanted;
  else
    ranges.push_back({fresh_, fresh_ + wanted});
  return ranges;
}

void Ledger::commit(std::uint64_t batch, std::vector<Range> unused) {
  auto returned = total_of(returned_);
  auto again = std::min(batch, returned);
  fresh_ += std::min(batch - again, samples_ - fresh_);
  returned_ = cut(returned_, again, returned - again);
  give_back(std::move(unused));
  if (left() > 0) return;
  ++epoch_;
  fresh_ = 0;
}

void Ledger::give_back(std::vector<Range> ranges) {
  ranges.insert(ranges.end(), returned_.begin(), returned_.end());
  std::erase_if(ranges, [](const Range& range) { return range.begin == range.end; });
  std::ranges::sort(ranges, {}, &Range::begin);
  returned_.clear();
  for (const auto& range : ranges) {
    PLIANT_ASSERT(range.begin < range.end && range.end <= fresh_);
    PLIANT_ASSERT(returned_.empty() || returned_.back().end <= range.begin);
    if (!returned_.empty() && returned_.back().end == range.begin)
      returned_.back().end = range.end;
    else
      returned_.push_back(range);
  }
}

std::uint64_t Ledger::digest() const {
  auto digest = combine(combine(combine(hash_name("ledger"), samples_), epoch_), fresh_);
  for (const auto& range : returned_) digest = combine(combine(digest, range.begin), range.end);
  return digest;
}

std::vector<std::uint64_t> part_sizes(std::uint64_t total, const Shares& shares) {
  auto sum = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  if (sum == 0) return part_sizes(total, Shares(shares.size(), kUsualShare));
  __extension__ using Wide = unsigned __int128;
  std::vector<std::uint64_t> sizes, lost;
  auto left = total;
  for (auto share : shares) {
    auto exact = static_cast<Wide>(total) * share;
    sizes.push_back(static_cast<std::uint64_t>(exact / sum));
    lost.push_back(static_cast<std::uint64_t>(exact % sum));
    left -= sizes.back();
  }
  std::vector<std::size_t> ranks(shares.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::stable_sort(ranks, std::ranges::greater(), [&](auto rank) { return lost[rank]; });
  for (std::uint64_t i = 0; i < left; ++i) ++sizes[ranks[i]];
  return sizes;
}

std::vector<Range> part_of(const std::vector<Range>& batch, const Shares& shares, int rank) {
  PLIANT_ASSERT(0 <= rank && static_cast<std::size_t>(rank) < shares.size());
  auto sizes = part_sizes(total_of(batch), shares);
  auto before = std::accumulate(sizes.begin(), sizes.begin() + rank, std::uint64_t{0});
  return cut(batch, before, sizes[static_cast<std::size_t>(rank)]);
}

}  // namespace pliant::step
