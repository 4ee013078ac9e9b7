#include "session/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/word_digest.h"
#include "step/summary.h"

namespace pliant::session {
namespace {

constexpr std::size_t kCopyBlock = 4 << 20;
constexpr std::uint64_t kSmallestStripe = 16 << 10;

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
void for_range(const std::vector<StateItem>& items, std::size_t begin, std::size_t end, Visit visit) {
  std::size_t at = 0;
  for (const auto& item : items) {
    auto from = std::max(begin, at);
    auto to = std::min(end, at + item.bytes());
    if (from < to) visit(static_cast<std::byte*>(item.data) + (from - at), to - from);
    at += item.bytes();
    if (at >= end) return;
  }
}

/// Visitors: what is visited goes to, or comes from, memory that has no gaps.
struct Packer {
  std::byte* to;
  void operator()(const std::byte* at, std::size_t bytes) {
    std::memcpy(to, at, bytes);
    to += bytes;
  }
};
struct Unpacker {
  const std::byte* from;
  void operator()(std::byte* at, std::size_t bytes) {
    std::memcpy(at, from, bytes);
    from += bytes;
  }
};

/// State cut into pieces that givers lay out in turn, one each in a round.
struct Pieces {
  std::size_t bytes, givers, size, count, rounds;

  Pieces(std::size_t total, std::size_t turn)
      : bytes(total),
        givers(turn),
        size(std::min(kCopyBlock, net::round_up((total + turn - 1) / turn, net::kPage))),
        count(total ? (total + size - 1) / size : 0),
        rounds((count + turn - 1) / turn) {}
  std::size_t begin(std::size_t round, std::size_t giver) const {
    return std::min(bytes, (round * givers + giver) * size);
  }
  std::size_t end(std::size_t round, std::size_t giver) const { return std::min(bytes, begin(round, giver) + size); }
};

constexpr std::size_t kWord = sizeof(std::uint64_t);

std::uint64_t words_of(const StateItem& item) { return (item.bytes() + kWord - 1) / kWord; }

std::uint64_t total_words(const std::vector<StateItem>& items) {
  std::uint64_t total = 0;
  for (const auto& item : items) total += words_of(item);
  return total;
}

/// Of words [begin, end) of the items, each of which begins with a word of its own. Wherever an item's memory is, its
/// parts can be computed there, and added.
std::uint64_t digest_words(const std::vector<StateItem>& items, std::uint64_t begin, std::uint64_t end) {
  constexpr auto kState = hash_name("state");
  std::uint64_t sum = 0, at = 0;
  for (std::size_t which = 0; which < items.size() && at < end; ++which) {
    const auto& item = items[which];
    const auto from = std::max(begin, at) - at, to = std::min(end - at, words_of(item));
    if (from < to)
      sum += parts_of_words(static_cast<const std::byte*>(item.data) + from * kWord,
                            std::min(item.bytes(), to * kWord) - from * kWord, from, combine(kState, which));
    at += words_of(item);
  }
  return combine(kState, sum);
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

std::uint64_t Replicas::layout() const {
  auto all = items();
  std::erase_if(all, [](const auto& item) { return item.role == Role::other; });
  return layout_of(all);
}

std::string Replicas::describe() const {
  auto all = items();
  std::erase_if(all, [](const auto& item) { return item.role == Role::other; });
  return fmt::format("{} items of {} ({:016x})", all.size(), format_bytes(total_bytes(all)), layout_of(all));
}

void Replicas::bring_into_being(const std::vector<StateItem>& like) {
  for (auto& [name, state] : states_) {
    std::vector<StateItem> theirs;
    for (auto item : like) {
      if (!item.name.starts_with(name + "/")) continue;
      item.name.erase(0, name.size() + 1);
      theirs.push_back(std::move(item));
    }
    state->prepare(theirs);
  }
}

Status Replicas::prepare(const std::vector<StateItem>& like) {
  bring_into_being(like);
  auto own = items();
  for (std::size_t i = 0; i < std::max(own.size(), like.size()); ++i) {
    auto words = [&](const std::vector<StateItem>& list) {
      if (i >= list.size()) return std::string("nothing");
      return fmt::format("'{}' of {} {}", list[i].name, list[i].count, name_of(list[i].dtype));
    };
    if (words(own) != words(like))
      return Error{Code::mismatch, fmt::format("workers share different state: the job has {}, this worker has {}",
                                               words(like), words(own))};
  }
  return {};
}

Status Replicas::copy_from(collective::Group& group, const std::vector<int>& givers, bool receive) {
  if (group.size() == 1) return {};
  for (int rank = 0; rank < group.size(); ++rank)
    if (!group.is_local(rank)) return copy_between_hosts(group, givers.front(), receive);
  return copy_on_host(group, givers, receive);
}

/// In rounds: every giver lays out a piece in one half of its memory, while those who receive take what the round
/// before has left in the others' halves. An exchange of rows ends a round for all.
Status Replicas::copy_on_host(collective::Group& group, const std::vector<int>& givers, bool receive) {
  auto all = items();
  Pieces pieces(total_bytes(all), givers.size());
  if (pieces.count == 0) return {};
  auto made = group.create_region("~state", 2 * pieces.size);
  if (!made.ok()) return made.error();
  auto& region = *made.value();
  // A first use of it tells when everybody's memory can be read.
  auto ready = group.submit({.name = "~state", .dtype = Dtype::u8, .count = 1, .region = made.value()});
  if (!ready.ok()) return ready.error();
  PLIANT_TRY(group.wait(ready.value()));

  auto own = static_cast<std::size_t>(std::ranges::find(givers, group.rank()) - givers.begin());
  auto half = [&](std::size_t round) { return round % 2 * pieces.size; };
  auto lay_out = [&](std::size_t round) {
    auto* to = region.input() + half(round);
    if (own < givers.size()) for_range(all, pieces.begin(round, own), pieces.end(round, own), Packer{to});
  };
  auto take = [&](std::size_t round) {
    for (std::size_t giver = 0; giver < givers.size(); ++giver) {
      const auto* from = region.input_of(group.place_of(givers[giver])) + half(round);
      for_range(all, pieces.begin(round, giver), pieces.end(round, giver), Unpacker{from});
    }
  };
  lay_out(0);
  for (std::size_t round = 0; round < pieces.rounds; ++round) {
    if (auto rows = group.exchange(""); !rows.ok()) return rows.error();
    if (round + 1 < pieces.rounds) lay_out(round + 1);
    if (receive) take(round);
  }
  return {};
}

Status Replicas::copy_between_hosts(collective::Group& group, int from, bool receive) {
  auto all = items();
  auto bytes = total_bytes(all);
  if (bytes == 0) return {};
  std::vector<std::int32_t> block(std::min(kCopyBlock, net::round_up(bytes, 4)) / 4);
  auto* start = reinterpret_cast<std::byte*>(block.data());
  auto block_bytes = block.size() * 4;
  for (std::size_t at = 0; at < bytes; at += block_bytes) {
    for_range(all, at, at + block_bytes, Packer{start});
    // A sum to which only one rank contributes is a copy of what that rank has.
    auto copied = group.submit({.name = "~copy",
                                .dtype = Dtype::i32,
                                .op = Op::sum,
                                .count = block.size(),
                                .in = block.data(),
                                .out = block.data(),
                                .weight = group.rank() == from ? 1.0 : 0.0,
                                .caller_waits = true});
    if (!copied.ok()) return copied.error();
    PLIANT_TRY(group.wait(copied.value()));
    if (receive) for_range(all, at, at + block_bytes, Unpacker{start});
  }
  return {};
}

void Replicas::repack(step::Reducer& reducer, const std::vector<StateItem>& all) {
  packs_.clear();
  std::map<std::pair<Role, Dtype>, std::vector<StateItem>> kinds;
  for (const auto& item : all) kinds[{item.role, item.dtype}].push_back(item);
  for (auto& [kind, members] : kinds) {
    Pack pack;
    pack.items = std::move(members);
    for (const auto& item : pack.items) pack.count += item.count;
    pack.memory = reducer.region(fmt::format("~buffers/{}/{}/{:016x}", kind.first == Role::average ? "mean" : "max",
                                             name_of(kind.second), layout_of(pack.items)),
                                 pack.count * size_of(kind.second));
    packs_.push_back(std::move(pack));
  }
}

void Replicas::begin_averaging(step::Reducer& reducer, double samples) {
  auto all = items();
  std::erase_if(all, [](const auto& item) { return item.role != Role::average && item.role != Role::counter; });
  if (auto layout = layout_of(all); layout != packed_layout_) {
    repack(reducer, all);
    packed_layout_ = layout;
  }
  for (auto& pack : packs_) {
    auto* to = pack.memory->region->input();
    for (const auto& item : pack.items) {
      std::memcpy(to, item.data, item.bytes());
      to += item.bytes();
    }
    bool averaged = pack.items[0].role == Role::average;
    pack.reduction = reducer.submit({.name = pack.memory->name,
                                     .dtype = pack.items[0].dtype,
                                     .op = averaged ? Op::weighted_mean : Op::max,
                                     .count = pack.count,
                                     .memory = pack.memory,
                                     .weight = averaged ? samples : 1.0,
                                     .caller_waits = true,
                                     .with_step = true});
  }
}

void Replicas::finish_averaging() {
  for (auto& pack : packs_) {
    const auto* from = static_cast<const std::byte*>(pack.reduction->result());
    for (const auto& item : pack.items) {
      std::memcpy(item.data, from, item.bytes());
      from += item.bytes();
    }
    pack.reduction.reset();
  }
}

std::uint64_t Replicas::stripe_digest(std::uint64_t step) const {
  auto all = items();
  auto total = total_words(all);
  auto stripes = std::clamp<std::uint64_t>(total * kWord / kSmallestStripe, 1, kStripes);
  auto stripe = step % stripes;
  return digest_words(all, total * stripe / stripes, total * (stripe + 1) / stripes);
}

std::uint64_t Replicas::digest() const {
  auto all = items();
  return combine(layout_of(all), digest_words(all, 0, total_words(all)));
}

}  // namespace pliant::session
