#include "collective/bridge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace pliant::collective {
namespace {

CrossingKey key_of(const FrameHeader& header) { return {static_cast<std::uint32_t>(header.use), header.value}; }

bool is_piece(const FrameHeader& header) { return header.kind == kPartial || header.kind == kFinal; }

std::string name_of_channel(const OwnChannels::Entry& own) { return printable(own.channel->name_text()); }

}  // namespace

Bridge::Bridge(const Team& team, const Topology& topology, Streams& streams, const Control& own, BridgeEvents events)
    : team_(team),
      topology_(topology),
      streams_(streams),
      events_(std::move(events)),
      host_(topology.host_of[static_cast<std::size_t>(team.rank)]),
      mirrors_(team.members.size()) {
  for (int rank = 0; rank < team_.size(); ++rank) {
    if (host_of(rank) == host_) continue;
    mirrors_[static_cast<std::size_t>(rank)] =
        std::make_unique<Mirror>(team_.view_hash, rank, team_.size(), own, channels_);
    elsewhere_.push_back(team_.members[static_cast<std::size_t>(rank)].id);
  }
  streams_.subscribe(team_.view_hash, this);
}

Bridge::~Bridge() { streams_.unsubscribe(team_.view_hash); }

const Control* Bridge::mirror(int rank) const { return &mirrors_[static_cast<std::size_t>(rank)]->control(); }

int Bridge::rank_of(std::uint64_t id) const {
  for (int rank = 0; rank < team_.size(); ++rank)
    if (team_.members[static_cast<std::size_t>(rank)].id == id && mirrors_[static_cast<std::size_t>(rank)]) return rank;
  return -1;
}

FrameHeader Bridge::header(FrameKind kind) const {
  FrameHeader header;
  header.kind = kind;
  header.view = team_.view_hash;
  return header;
}

// ---- words ----

void Bridge::say(FrameHeader header, std::span<const std::byte> bytes) {
  for (auto id : elsewhere_) streams_.send_words(id, header, bytes);
}

void Bridge::announce(std::uint32_t index, const Channel& channel, const CrossingPlan& plan) {
  PLIANT_ASSERT(channels_.size() == index);
  channels_.add(channel, plan);  // first: whoever hears of it may send pieces of it
  auto words = header(kAnnounce);
  words.index = index;
  say(words, std::as_bytes(std::span(reinterpret_cast<const char*>(&channel), kDescription)));
}

void Bridge::publish(std::uint32_t index, Counter counter, std::uint64_t value, int slot, double number,
                     double spread) {
  auto words = header(kProgress);
  words.index = index;
  words.slot = static_cast<std::uint16_t>(static_cast<int>(counter) * 2 + slot);
  words.value = value;
  words.number = number;
  words.spread = spread;
  say(words);
}

void Bridge::publish_row(std::uint64_t number, std::string_view row) {
  auto words = header(kRow);
  words.value = number;
  say(words, std::as_bytes(std::span(row)));
}

void Bridge::publish_state(const Control& own) {
  auto words = header(kState);
  words.index = own.blocked_on.load(std::memory_order_acquire);
  words.value = own.blocked_turns.load(std::memory_order_acquire);
  words.use = own.confirmed.load(std::memory_order_acquire);
  auto length = std::min<std::size_t>(own.complaint_length.load(std::memory_order_acquire), sizeof(own.complaint));
  say(words, std::as_bytes(std::span(own.complaint, length)));
}

// ---- stripes ----

/// Does not make one that was closed before: of a chunk that is reduced nothing is missing.
CrossingPtr Bridge::crossing_of(const CrossingKey& key, bool make) {
  std::lock_guard lock(mutex_);
  auto at = crossings_.find(key);
  if (at != crossings_.end()) return at->second;
  if (!make || channels_.at(key.channel)->channel->reduced.load(std::memory_order_acquire) > key.chunk) return nullptr;
  auto crossing = std::make_shared<Crossing>();
  crossing->key = key;
  return crossings_[key] = crossing;
}

CrossingPtr Bridge::open(const CrossingKey& key, std::span<const Channel* const> peers, Given given) {
  auto crossing = crossing_of(key, true);
  PLIANT_ASSERT(crossing);
  const auto& plan = channels_.at(key.channel)->plan;
  for (const auto& at : plan.legs_of(topology_.place_of[static_cast<std::size_t>(team_.rank)], key.chunk))
    crossing->legs.push_back({at, final_host(at.stripe, topology_) == host_, false, {}});
  crossing->peers = peers;
  crossing->given = given.bytes;
  crossing->own_weight = given.weight;
  crossing->own_contributors = given.contributors;
  {
    std::lock_guard lock(crossing->mutex);
    crossing->result = given.result;
    crossing->keep = std::move(given.keep);
    for (const auto& leg : crossing->legs) {
      auto from = carrier(leg.at.stripe, final_host(leg.at.stripe, topology_), topology_);
      if (!leg.final_here) crossing->expected[leg.at.number] = {leg.at.piece, from};
    }
  }
  for (const auto& leg : crossing->legs) {
    if (leg.final_here) continue;
    std::span<const std::byte> bytes(given.bytes + leg.at.piece.begin, given.contributors ? leg.at.piece.size() : 0);
    send_leg(*crossing, leg, kPartial, final_host(leg.at.stripe, topology_), bytes);
  }
  return crossing;
}

/// Names the channel as its receiver does.
void Bridge::send_leg(const Crossing& crossing, const Leg& leg, FrameKind kind, int host,
                      std::span<const std::byte> bytes) {
  auto to = static_cast<std::size_t>(carrier(leg.at.stripe, host, topology_));
  auto frame = header(kind);
  frame.use = static_cast<std::uint64_t>(crossing.peers[to] - mirrors_[to]->control().channel);
  frame.value = crossing.key.chunk;
  frame.index = leg.at.number;
  frame.number = crossing.own_weight;
  frame.slot = static_cast<std::uint16_t>(crossing.own_contributors);
  streams_.send_data(team_.members[to].id, leg.at.stripe, frame, bytes, crossing.keep);
}

void Bridge::send_final(const Crossing& crossing, Leg& leg) {
  for (int host = 0; host < topology_.host_count(); ++host)
    if (host != host_)
      send_leg(crossing, leg, kFinal, host, {crossing.result + leg.at.piece.begin, leg.at.piece.size()});
  std::lock_guard lock(mutex_);
  for (auto& partial : leg.partials)
    if (partial.bytes) buffers_.push_back(std::move(partial.bytes));
  leg.partials.clear();
}

std::unique_ptr<std::byte[]> Bridge::take_buffer() {
  std::lock_guard lock(mutex_);
  if (buffers_.empty()) return std::make_unique_for_overwrite<std::byte[]>(FrameHeader::kMostBytes);
  auto buffer = std::move(buffers_.back());
  buffers_.pop_back();
  return buffer;
}

bool Bridge::collect(Crossing& crossing) {
  std::lock_guard lock(crossing.mutex);
  for (auto& partial : crossing.arrived) {
    auto leg = std::ranges::lower_bound(crossing.legs, partial.leg, {}, [](const Leg& one) { return one.at.number; });
    PLIANT_ASSERT(leg != crossing.legs.end() && leg->at.number == partial.leg && leg->final_here);
    leg->partials.push_back(std::move(partial));
  }
  crossing.arrived.clear();
  return crossing.expected.empty();
}

void Bridge::close(const Crossing& crossing) {
  std::lock_guard lock(mutex_);
  crossings_.erase(crossing.key);
}

std::size_t Bridge::crossings() const {
  std::lock_guard lock(mutex_);
  return crossings_.size();
}

// ---- on the streams' thread ----

/// Pieces are of no use after the view's end; words may still tell what was complete before it.
Result<std::byte*> Bridge::place_for(std::uint64_t from, const FrameHeader& header,
                                     std::vector<std::byte>& lane_buffer) {
  if (is_piece(header) && events_.is_over()) return static_cast<std::byte*>(nullptr);
  auto place = place_of(from, header, lane_buffer);
  if (!place.ok() && events_.is_over()) return static_cast<std::byte*>(nullptr);
  return place;
}

Result<std::byte*> Bridge::place_of(std::uint64_t from, const FrameHeader& header,
                                    std::vector<std::byte>& lane_buffer) {
  int rank = rank_of(from);
  if (rank < 0) return malformed(fmt::format("a frame of kind {} of a view that it is not in", header.kind));
  if (header.kind == kPartial) return place_for_partial(rank, header);
  if (header.kind == kFinal) return place_for_final(rank, header);
  if (header.bytes > kMostWords)
    return malformed(
        fmt::format("a frame of kind {} with {} bytes, more than {}", header.kind, header.bytes, kMostWords));
  lane_buffer.resize(header.bytes);
  return lane_buffer.data();
}

/// The piece that a frame of stripes is about, as this rank's own plan has it.
Result<LegPlace> Bridge::leg_of(int rank, const FrameHeader& header) const {
  const auto* own = channels_.at(header.use);
  if (!own)
    return malformed(
        fmt::format("a piece of channel {}, of which this worker has described {}", header.use, channels_.size()));
  auto reduced = own->channel->reduced.load(std::memory_order_acquire);
  if (header.value < reduced || header.value - reduced >= own->plan.ahead())
    return malformed(fmt::format("a piece of chunk {} of channel '{}', where {} are reduced and {} may be on their way",
                                 header.value, name_of_channel(*own), reduced, own->plan.ahead()));
  auto leg = own->plan.leg_at(header.value, header.index);
  bool carried = leg && carrier(leg->stripe, host_, topology_) == team_.rank &&
                 carrier(leg->stripe, host_of(rank), topology_) == rank;
  if (!carried)
    return malformed(fmt::format("a piece at page {} of channel '{}', which it does not carry to this worker",
                                 header.index, name_of_channel(*own)));
  return *leg;
}

Result<std::byte*> Bridge::place_for_partial(int rank, const FrameHeader& header) {
  auto leg = leg_of(rank, header);
  if (!leg.ok()) return leg.error();
  auto host = host_of(rank);
  auto most = topology_.hosts[static_cast<std::size_t>(host)].size();
  auto size = header.slot ? leg.value().piece.size() : 0;
  bool weighs = std::isfinite(header.number) && header.number >= 0 && (header.number > 0) == (header.slot > 0);
  if (final_host(leg.value().stripe, topology_) != host_ || header.slot > most || header.bytes != size || !weighs)
    return malformed(fmt::format("a partial of {} bytes by {} ranks of weight {}, where {} bytes by at most {} belong",
                                 header.bytes, header.slot, header.number, leg.value().piece.size(), most));
  auto crossing = crossing_of(key_of(header), true);
  auto twice = [&] {
    return malformed(
        fmt::format("a second partial at page {} of chunk {} of channel {}", header.index, header.value, header.use));
  };
  if (!crossing) return twice();
  std::lock_guard lock(crossing->mutex);
  if (!crossing->senders.insert({rank, header.index}).second) return twice();
  auto& partial = crossing->begun[{rank, header.index}];
  partial = {host, header.index, header.number, header.slot, nullptr, header.bytes};
  if (header.bytes > 0) partial.bytes = take_buffer();
  return partial.bytes.get();
}

Result<std::byte*> Bridge::place_for_final(int rank, const FrameHeader& header) {
  auto leg = leg_of(rank, header);
  if (!leg.ok()) return leg.error();
  auto crossing = crossing_of(key_of(header), false);
  if (!crossing) return malformed(fmt::format("a result of channel {} that nobody has begun", header.use));
  std::lock_guard lock(crossing->mutex);
  auto at = crossing->expected.find(header.index);
  if (at == crossing->expected.end() || at->second.begun || at->second.from != rank)
    return malformed(
        fmt::format("a result at page {} of channel {} that is not awaited of it", header.index, header.use));
  if (header.bytes != at->second.piece.size())
    return malformed(fmt::format("a result of {} bytes, where {} belong", header.bytes, at->second.piece.size()));
  at->second.begun = true;
  return crossing->result + at->second.piece.begin;
}

Status Bridge::on_frame(std::uint64_t from, const FrameHeader& header, std::byte* bytes) {
  int rank = rank_of(from);
  if (rank < 0 || (is_piece(header) && events_.is_over())) return {};  // its beginning was passed over, too
  if (header.kind == kPartial) {
    on_partial(rank, header);
  } else if (header.kind == kFinal) {
    on_final(header);
  } else {
    auto taken = mirrors_[static_cast<std::size_t>(rank)]->take(header, bytes);
    if (!taken.ok()) return events_.is_over() ? Status() : taken;
    events_.nudge();
  }
  return {};
}

void Bridge::on_partial(int rank, const FrameHeader& header) {
  auto crossing = crossing_of(key_of(header), false);
  if (!crossing) return;
  bool all = false;
  {
    std::lock_guard lock(crossing->mutex);
    auto at = crossing->begun.find({rank, header.index});
    if (at == crossing->begun.end()) return;
    crossing->arrived.push_back(std::move(at->second));
    crossing->begun.erase(at);
    all = ++crossing->complete[header.index] == topology_.host_count() - 1;
  }
  if (all) events_.nudge();
}

void Bridge::on_final(const FrameHeader& header) {
  auto crossing = crossing_of(key_of(header), false);
  if (!crossing) return;
  bool all = false;
  {
    std::lock_guard lock(crossing->mutex);
    crossing->expected.erase(header.index);
    all = crossing->expected.empty();
  }
  if (all) events_.nudge();
}

}  // namespace pliant::collective
