#include "collective/bridge.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/log.h"

namespace pliant::collective {
namespace {

/// What of a channel is written once.
constexpr std::size_t kDescription = offsetof(Channel, submitted);

Control* control_in(const net::Mapping& mapping) { return reinterpret_cast<Control*>(mapping.data()); }

net::Mapping make_mirror(std::uint64_t view_hash, int rank, int ranks) {
  void* at = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw Failure(Code::io, errno_error("a mirror").message);
  net::Mapping mapping(at, sizeof(Control));
  auto* control = control_in(mapping);
  control->magic = kControlMagic;
  control->view_hash = view_hash;
  control->rank = static_cast<std::uint32_t>(rank);
  control->ranks = static_cast<std::uint32_t>(ranks);
  return mapping;
}

CrossingKey key_of(const FrameHeader& header) { return {header.name, header.use, header.value}; }

/// Frames of one sender come in order, but those that two of its threads send at once may be swapped.
void raise(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  if (counter.load(std::memory_order_relaxed) < value) counter.store(value, std::memory_order_seq_cst);
}

}  // namespace

Bridge::Bridge(const Team& team, const Topology& topology, Streams& streams, std::function<void()> nudge)
    : team_(team),
      topology_(topology),
      streams_(streams),
      nudge_(std::move(nudge)),
      host_(topology.host_of[static_cast<std::size_t>(team.rank)]),
      mirrors_(team.members.size()),
      scratch_(kScratch) {
  for (int rank = 0; rank < team_.size(); ++rank) {
    if (topology_.host_of[static_cast<std::size_t>(rank)] == host_) continue;
    mirrors_[static_cast<std::size_t>(rank)] = make_mirror(team_.view_hash, rank, team_.size());
    elsewhere_.push_back(team_.members[static_cast<std::size_t>(rank)].id);
  }
  streams_.subscribe(team_.view_hash, this);
}

Bridge::~Bridge() { streams_.unsubscribe(team_.view_hash); }

const Control* Bridge::mirror(int rank) const { return control_in(mirrors_[static_cast<std::size_t>(rank)]); }

int Bridge::rank_of(std::uint64_t id) const {
  for (int rank = 0; rank < team_.size(); ++rank)
    if (team_.members[static_cast<std::size_t>(rank)].id == id && mirrors_[static_cast<std::size_t>(rank)].data())
      return rank;
  return -1;
}

FrameHeader Bridge::header(Kind kind) const {
  FrameHeader header;
  header.kind = kind;
  header.view = team_.view_hash;
  return header;
}

// ---- words ----

void Bridge::say(FrameHeader header, std::span<const std::byte> bytes) {
  for (auto id : elsewhere_) streams_.send_words(id, header, bytes);
}

void Bridge::announce(std::uint32_t index, const Channel& channel) {
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

void Bridge::on_words(int rank, const FrameHeader& header, const std::byte* bytes) {
  auto& control = *control_in(mirrors_[static_cast<std::size_t>(rank)]);
  switch (header.kind) {
    case kAnnounce:
      if (header.index >= kMaxChannels || header.bytes != kDescription) return;
      std::memcpy(static_cast<void*>(&control.channel[header.index]), bytes, kDescription);
      if (control.channels.load(std::memory_order_relaxed) == header.index)
        control.channels.store(header.index + 1, std::memory_order_seq_cst);
      break;
    case kProgress: {
      if (header.index >= kMaxChannels) return;
      auto& channel = control.channel[header.index];
      auto slot = header.slot % 2;
      switch (static_cast<Counter>(header.slot / 2)) {
        case Counter::submitted:
          channel.weight[slot] = header.number;
          raise(channel.submitted, header.value);
          break;
        case Counter::reduced:
          channel.measured[slot] = {header.number, header.spread};
          raise(channel.reduced, header.value);
          break;
        case Counter::copied:
          raise(channel.copied, header.value);
          break;
      }
      break;
    }
    case kRow: {
      if (header.bytes > kRowBytes) return;
      auto at = (header.value + 1) % 2;  // row r, counted from 1, is at [(r - 1) % 2]
      std::memcpy(control.row[at], bytes, header.bytes);
      control.row_size[at] = header.bytes;
      raise(control.rows, header.value);
      break;
    }
    case kState:
      control.blocked_on.store(header.index, std::memory_order_release);
      control.blocked_turns.store(static_cast<std::uint32_t>(header.value), std::memory_order_release);
      raise(control.confirmed, header.use);
      if (header.bytes == 0 || header.bytes > sizeof(control.complaint)) break;
      std::memcpy(control.complaint, bytes, header.bytes);
      control.complaint_length.store(header.bytes, std::memory_order_release);
      break;
    default:
      return;
  }
  nudge_();
}

// ---- stripes ----

CrossingPtr Bridge::crossing_of(const CrossingKey& key, bool make) {
  std::lock_guard lock(mutex_);
  auto at = crossings_.find(key);
  if (at != crossings_.end()) return at->second;
  if (!make) return nullptr;
  auto crossing = std::make_shared<Crossing>();
  crossing->key = key;
  return crossings_[key] = crossing;
}

CrossingPtr Bridge::open(const CrossingKey& key, std::vector<Leg> legs, const std::byte* given, std::byte* result,
                         std::shared_ptr<const void> keep, double weight, std::size_t contributors) {
  auto crossing = crossing_of(key, true);
  crossing->legs = std::move(legs);
  crossing->given = given;
  crossing->own_weight = weight;
  crossing->own_contributors = contributors;
  {
    std::lock_guard lock(crossing->mutex);
    crossing->result = result;
    crossing->keep = std::move(keep);
    for (const auto& leg : crossing->legs)
      if (!leg.final_here) crossing->expected[leg.number] = leg.piece;
  }
  for (const auto& leg : crossing->legs) {
    if (leg.final_here) continue;
    std::span<const std::byte> bytes(given + leg.piece.begin, contributors ? leg.piece.size() : 0);
    send_leg(*crossing, leg, kPartial, final_host(leg.stripe, topology_), bytes);
  }
  return crossing;
}

void Bridge::send_leg(const Crossing& crossing, const Leg& leg, Kind kind, int host, std::span<const std::byte> bytes) {
  auto frame = header(kind);
  frame.name = crossing.key.name;
  frame.use = crossing.key.use;
  frame.value = crossing.key.chunk;
  frame.index = leg.number;
  frame.number = crossing.own_weight;
  frame.slot = static_cast<std::uint16_t>(crossing.own_contributors);
  auto to = team_.members[static_cast<std::size_t>(carrier(leg.stripe, host, topology_))].id;
  streams_.send_data(to, leg.stripe, frame, bytes, crossing.keep);
}

void Bridge::send_final(const Crossing& crossing, Leg& leg) {
  for (int host = 0; host < topology_.host_count(); ++host)
    if (host != host_) send_leg(crossing, leg, kFinal, host, {crossing.result + leg.piece.begin, leg.piece.size()});
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
    auto leg = std::ranges::lower_bound(crossing.legs, partial.leg, {}, &Leg::number);
    if (leg != crossing.legs.end() && leg->number == partial.leg && leg->final_here)
      leg->partials.push_back(std::move(partial));
  }
  crossing.arrived.clear();
  return crossing.expected.empty();
}

void Bridge::close(const Crossing& crossing) {
  std::lock_guard lock(mutex_);
  crossings_.erase(crossing.key);
}

// ---- on the streams' thread ----

std::byte* Bridge::place_for(std::uint64_t from, const FrameHeader& header) {
  int rank = rank_of(from);
  if (rank < 0) return nullptr;
  if (header.kind == kPartial) return place_for_partial(rank, from, header);
  if (header.kind == kFinal) return place_for_final(header);
  return header.bytes <= scratch_.size() ? scratch_.data() : nullptr;
}

std::byte* Bridge::place_for_partial(int rank, std::uint64_t from, const FrameHeader& header) {
  auto crossing = crossing_of(key_of(header), true);
  std::lock_guard lock(crossing->mutex);
  auto& partial = crossing->begun[{from, header.index}];
  partial.host = topology_.host_of[static_cast<std::size_t>(rank)];
  partial.leg = header.index;
  partial.weight = header.number;
  partial.contributors = header.slot;
  partial.size = header.bytes;
  if (header.bytes > 0) partial.bytes = take_buffer();
  return partial.bytes.get();
}

std::byte* Bridge::place_for_final(const FrameHeader& header) {
  auto crossing = crossing_of(key_of(header), false);
  if (!crossing) return nullptr;
  std::lock_guard lock(crossing->mutex);
  auto at = crossing->expected.find(header.index);
  if (!crossing->result || at == crossing->expected.end()) return nullptr;
  if (at->second.size() != header.bytes) return nullptr;
  return crossing->result + at->second.begin;
}

void Bridge::on_frame(std::uint64_t from, const FrameHeader& header, std::byte* bytes) {
  int rank = rank_of(from);
  if (rank < 0) return;
  if (header.kind == kPartial)
    on_partial(from, header);
  else if (header.kind == kFinal)
    on_final(header);
  else
    on_words(rank, header, bytes);
}

void Bridge::on_partial(std::uint64_t from, const FrameHeader& header) {
  auto crossing = crossing_of(key_of(header), false);
  if (!crossing) return;
  bool all = false;
  {
    std::lock_guard lock(crossing->mutex);
    auto at = crossing->begun.find({from, header.index});
    if (at == crossing->begun.end()) return;
    crossing->arrived.push_back(std::move(at->second));
    crossing->begun.erase(at);
    all = ++crossing->complete[header.index] == topology_.host_count() - 1;
  }
  if (all) nudge_();
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
  if (all) nudge_();
}

}  // namespace pliant::collective
