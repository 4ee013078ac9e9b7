#include "session/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/hash.h"
#include "session/summary.h"

namespace pliant::session {
namespace {

constexpr std::size_t kCopyBlock = 4 << 20;

std::uint64_t layout_of(const std::vector<StateItem>& items) {
  std::uint64_t hash = hash_name("layout");
  for (const auto& item : items) {
    hash = combine(combine(hash, hash_name(item.name)), item.count);
    hash = combine(hash, static_cast<std::uint64_t>(item.dtype) * 16 + static_cast<std::uint64_t>(item.role));
  }
  return hash;
}

std::size_t total_bytes(const std::vector<StateItem>& items) {
  std::size_t total = 0;
  for (const auto& item : items) total += item.bytes();
  return total;
}

/// Calls `visit(pointer, bytes)` for what lies in [begin, end) of the items laid end to end.
template <class Visit>
void for_range(const std::vector<StateItem>& items, std::size_t begin, std::size_t end, const Visit& visit) {
  std::size_t at = 0;
  for (const auto& item : items) {
    auto from = std::max(begin, at);
    auto to = std::min(end, at + item.bytes());
    if (from < to) visit(static_cast<std::byte*>(item.data) + (from - at), to - from);
    at += item.bytes();
    if (at >= end) return;
  }
}

std::uint64_t digest_range(const std::vector<StateItem>& items, std::size_t begin, std::size_t end) {
  std::uint64_t digest = hash_name("state");
  for_range(items, begin, end,
            [&](const std::byte* at, std::size_t bytes) { digest = digest_bytes(at, bytes, digest); });
  return digest;
}

}  // namespace

void Replicas::add(const std::string& name, StatePtr state) { states_.emplace_back(name, std::move(state)); }

std::vector<StateItem> Replicas::items() const {
  std::vector<StateItem> all;
  for (const auto& [name, state] : states_)
    for (auto& item : state->items()) {
      item.name = name + "/" + item.name;
      all.push_back(std::move(item));
    }
  return all;
}

Status Replicas::synchronize(collective::Group& group) {
  auto all = items();
  auto bytes = total_bytes(all);
  auto rows = group.exchange(fmt::format("{} items of {} ({:016x})", all.size(), format_bytes(bytes), layout_of(all)));
  if (!rows.ok()) return rows.error();
  for (std::size_t rank = 1; rank < rows.value().size(); ++rank)
    if (rows.value()[rank] != rows.value()[0])
      return Error{Code::mismatch, fmt::format("workers share different state: rank 0 has {}, rank {} has {}",
                                               rows.value()[0], rank, rows.value()[rank])};
  if (group.size() == 1) return {};
  std::vector<std::int32_t> block(std::min(kCopyBlock, net::round_up(std::max<std::size_t>(bytes, 4), 4)) / 4);
  auto block_bytes = block.size() * 4;
  for (std::size_t at = 0; at < bytes; at += block_bytes) {
    auto* cursor = reinterpret_cast<std::byte*>(block.data());
    for_range(all, at, at + block_bytes, [&](const std::byte* from, std::size_t size) {
      std::memcpy(cursor, from, size);
      cursor += size;
    });
    // A sum to which only rank 0 contributes is a copy of what rank 0 has.
    auto copied = group.submit({.name = "~copy",
                                .dtype = Dtype::i32,
                                .op = Op::sum,
                                .count = block.size(),
                                .in = block.data(),
                                .out = block.data(),
                                .weight = group.rank() == 0 ? 1.0 : 0.0,
                                .caller_waits = true});
    if (!copied.ok()) return copied.error();
    PLIANT_TRY(group.wait(copied.value()));
    cursor = reinterpret_cast<std::byte*>(block.data());
    for_range(all, at, at + block_bytes, [&](std::byte* to, std::size_t size) {
      std::memcpy(to, cursor, size);
      cursor += size;
    });
  }
  return {};
}

Status Replicas::repack(collective::Group& group, const std::vector<StateItem>& all) {
  packs_.clear();
  ++generation_;
  std::map<std::pair<Role, Dtype>, std::vector<StateItem>> kinds;
  for (const auto& item : all)
    if (item.role == Role::average || item.role == Role::counter) kinds[{item.role, item.dtype}].push_back(item);
  for (auto& [kind, members] : kinds) {
    Pack pack;
    pack.items = std::move(members);
    for (const auto& item : pack.items) pack.count += item.count;
    pack.name = fmt::format("~buffers/{}/{}", name_of(kind.second), generation_);
    auto region = group.create_region(pack.name, pack.count * size_of(kind.second));
    if (!region.ok()) return region.error();
    pack.region = std::move(region).value();
    packs_.push_back(std::move(pack));
  }
  return {};
}

Status Replicas::begin_averaging(collective::Group& group, double samples) {
  if (group.size() == 1) return {};
  auto all = items();
  std::erase_if(all, [](const auto& item) { return item.role != Role::average && item.role != Role::counter; });
  if (auto layout = layout_of(all); layout != packed_layout_) {
    PLIANT_TRY(repack(group, all));
    packed_layout_ = layout;
  }
  for (auto& pack : packs_) {
    auto* to = pack.region->input();
    for (const auto& item : pack.items) {
      std::memcpy(to, item.data, item.bytes());
      to += item.bytes();
    }
    bool averaged = pack.items[0].role == Role::average;
    auto operation = group.submit({.name = pack.name,
                                   .dtype = pack.items[0].dtype,
                                   .op = averaged ? Op::weighted_mean : Op::max,
                                   .count = pack.count,
                                   .region = pack.region,
                                   .weight = averaged ? samples : 1.0,
                                   .caller_waits = true});
    if (!operation.ok()) return operation.error();
    pack.operation = std::move(operation).value();
  }
  return {};
}

Status Replicas::finish_averaging(collective::Group& group) {
  for (auto& pack : packs_) {
    if (!pack.operation) continue;
    PLIANT_TRY(group.wait(pack.operation));
    const auto* from = static_cast<const std::byte*>(pack.operation->result());
    for (const auto& item : pack.items) {
      std::memcpy(item.data, from, item.bytes());
      from += item.bytes();
    }
    pack.operation.reset();
  }
  return {};
}

std::uint64_t Replicas::stripe_digest(std::uint64_t step) {
  auto stripe = step % kStripes;
  if (stripe == 0 || watched_.empty()) watched_ = items();  // state that came into being is seen from the next round on
  auto total = total_bytes(watched_);
  return digest_range(watched_, total * stripe / kStripes, total * (stripe + 1) / kStripes);
}

std::uint64_t Replicas::digest() const {
  auto all = items();
  return combine(layout_of(all), digest_range(all, 0, total_bytes(all)));
}

}  // namespace pliant::session
