#include "collective/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/system.h"

namespace pliant::collective {
namespace {

std::vector<std::string> hosts_of(const Team& team) {
  std::vector<std::string> hosts;
  for (const auto& member : team.members) hosts.push_back(member.host);
  return hosts;
}

/// Hosts' parts are of the same type as the result: means of integers would be cut twice, sums of bytes overflow.
bool can_cross(Dtype dtype, Op op) {
  if (dtype < Dtype::i8) return true;
  bool bytes = dtype == Dtype::i8 || dtype == Dtype::u8;
  return op != Op::weighted_mean && !(bytes && op == Op::mean);
}

/// Unlike a comparison of addresses this tells a region from a later one in the same place.
bool is_same(const std::weak_ptr<SharedRegion>& before, const std::shared_ptr<SharedRegion>& now) {
  return !before.owner_before(now) && !now.owner_before(before);
}

}  // namespace

Engine::Engine(Team team, Control* control, const GroupOptions& options, Streams* streams)
    : team_(std::move(team)),
      topology_(topology_of(hosts_of(team_))),
      control_(control),
      options_(options),
      // What comes from other hosts takes its time: whoever waits for it leaves the core to others.
      crowding_(topology_.host_count() > 1 || team_.size() > usable_cores()),
      controls_(team_.members.size(), nullptr),
      directories_(team_.members.size()),
      rows_(control_, controls_),
      departures_(team_.members.size()) {
  add_peer(team_.rank, control_);
  for (int rank = 0; rank < team_.size(); ++rank) everybody_.push_back(rank);
  neighbours_ = topology_.hosts[topology_.host_of[team_.rank]];
  if (neighbours_.size() == everybody_.size()) return;
  PLIANT_ASSERT(streams);
  BridgeEvents events;
  events.nudge = [this] {
    if (started_.load(std::memory_order_acquire)) nudge();  // before, nobody waits, and peers are still being added
  };
  events.is_over = [this] { return fenced(); };
  bridge_ = std::make_unique<Bridge>(team_, topology_, *streams, *control_, std::move(events));
  for (int rank : everybody_)
    if (!is_local(rank)) add_peer(rank, bridge_->mirror(rank));
}

Engine::~Engine() {
  background_.stop();
  bridge_.reset();  // now: the streams' thread calls into everything else
}

void Engine::add_peer(int rank, const Control* control) {
  controls_[rank] = control;
  directories_[rank] = PeerDirectory(control);
}

void Engine::start() {
  started_.store(true, std::memory_order_release);
  background_.start([this] { work_in_background(); });
}

// ---- submitting ----

Result<LocalChannel*> Engine::channel_for(const Request& request, const RegionMaker& plain_region) {
  bool registered = request.region != nullptr;
  auto region = std::static_pointer_cast<SharedRegion>(request.region);  // groups of this kind make no others
  ChannelShape shape{request.count, registered ? request.offset : 0, request.dtype, request.op,
                     registered ? Memory::registered : Memory::plain};
  auto& history = channels_[std::string(request.name)];
  if (!history.empty()) {
    auto& newest = *history.back();
    if (newest.own->shape == shape && (!registered || is_same(newest.registered, region))) return &newest;
  }
  auto index = control_->channels.load(std::memory_order_relaxed);
  if (index == kMaxChannels) return nullptr;

  auto channel = std::make_unique<LocalChannel>();
  channel->name = request.name;
  channel->index = index;
  channel->own = &control_->channel[index];
  channel->registered = region;
  channel->peers.resize(team_.members.size(), nullptr);
  std::uint64_t first_use = history.empty() ? 0 : history.back()->own->first_use + history.back()->uses;
  auto bytes = request.count * size_of(request.dtype);
  if (registered) {
    channel->pieces =
        pieces_of(region->stripes(), topology_.place_of[team_.rank], request.offset, request.offset + bytes);
    channel->crossing = CrossingPlan::of_registered(region->stripes(), request.offset, bytes);
  } else {
    channel->ring = ring_for(bytes, team_.size());
    auto made = plain_region(fmt::format("~{}", request.name.substr(0, kMaxChannelName - 1)),
                             channel->ring.chunk * static_cast<std::size_t>(channel->ring.slots));
    if (!made.ok()) return made.error();
    channel->buffer = std::move(made).value();
    channel->crossing = CrossingPlan::of_plain(channel->buffer->stripes(), channel->ring, bytes);
  }
  const auto& memory = registered ? *region : *channel->buffer;
  const auto& region_name = memory.name();
  auto& entry = *channel->own;
  entry.first_use = first_use;
  entry.chunks = registered ? 1 : channel->ring.chunks;
  entry.shape = shape;
  entry.name_length = static_cast<std::uint8_t>(request.name.size());
  std::memcpy(entry.name, request.name.data(), request.name.size());
  entry.region_length = static_cast<std::uint8_t>(std::min(region_name.size(), kMaxChannelName));
  std::memcpy(entry.region, region_name.data(), entry.region_length);
  entry.region_bytes = memory.bytes();
  control_->channels.store(index + 1, std::memory_order_seq_cst);
  if (bridge_) bridge_->announce(index, entry, channel->crossing);
  ring();                                                // a peer may sleep because it found no such channel here
  if (!history.empty()) history.back()->buffer.reset();  // what is in flight holds it
  history.push_back(std::move(channel));
  return history.back().get();
}

std::shared_ptr<Work> Engine::without_channel() {
  auto work = std::make_shared<Work>();
  work->error_ = {Code::peer_lost, fmt::format("the view has had {} names and lengths of reductions", kMaxChannels)};
  work->state_.store(Work::State::failed, std::memory_order_release);
  return work;
}

Result<std::shared_ptr<Work>> Engine::submit(const Request& request, const RegionMaker& plain_region) {
  auto bytes = request.count * size_of(request.dtype);
  if (request.name.empty() || request.name.size() > kMaxChannelName)
    return Error{Code::invalid, fmt::format("a reduction needs a name of 1 to {} characters", kMaxChannelName)};
  if (request.count == 0) return Error{Code::invalid, fmt::format("reduction '{}' has no elements", request.name)};
  if (request.region && (request.offset % size_of(request.dtype) != 0 || request.offset > request.region->bytes() ||
                         bytes > request.region->bytes() - request.offset))
    return Error{Code::invalid, fmt::format("reduction '{}' is outside of region '{}'", request.name,
                                            static_cast<const SharedRegion&>(*request.region).name())};
  if (!request.region && (!request.in || !request.out))
    return Error{Code::invalid, fmt::format("reduction '{}' has no memory", request.name)};
  if (std::isinf(request.weight))
    return Error{Code::invalid, fmt::format("reduction '{}' has a weight that is not finite", request.name)};

  if (bridge_ && !can_cross(request.dtype, request.op))
    return Error{Code::invalid, fmt::format("reduction '{}': a {} of {} between hosts would not be exact", request.name,
                                            name_of(request.op), name_of(request.dtype))};

  auto work = std::make_shared<Work>();
  {
    std::lock_guard lock(submit_mutex_);
    auto found = channel_for(request, plain_region);
    if (!found.ok()) return found.error();
    if (!found.value()) return without_channel();
    auto& channel = *found.value();
    work->channel_ = &channel;
    work->region_ = request.region ? std::static_pointer_cast<SharedRegion>(request.region) : channel.buffer;
    work->use_ = channel.own->first_use + channel.uses;
    work->base_ = channel.uses * channel.own->chunks;
    work->in_ = static_cast<const std::byte*>(request.in);
    work->out_ = static_cast<std::byte*>(request.out);
    work->measure_ = request.measure;
    if (request.measure == Measure::spread && request.marks) {
      work->marks_ = request.marks;
      work->parts_.resize(request.marks->size());
    }
    work->confirmed_later_ = request.confirmed_later;
    if (request.region) work->result_ = work->region_->result(static_cast<int>(work->use_ % 2)) + request.offset;
    work->weight_ = request.weight;
    if (request.region) channel.own->weight[work->use_ % 2] = request.weight;  // it is published at once
    ++channel.uses;
    inbox_.push_back(work);
    in_flight_.fetch_add(1, std::memory_order_seq_cst);
  }
  bool complete = request.region && publish(*work->channel_, Counter::submitted, work->base_ + 1, work->use_);
  // A thread that watches the bells hears of the rest; it is needed now only if there is something to reduce or copy.
  bool useful = complete || !request.region || !background_.watches();
  if (useful && !request.caller_waits) background_.wake();
  return work;
}

// ---- the end of a view ----

void Engine::fence(Error why) {
  if (!fence_.raise(std::move(why), [this] { control_->fenced.store(1, std::memory_order_seq_cst); })) return;
  { std::lock_guard wait_for_work_in_progress(work_mutex_); }
  nudge();
}

bool Engine::any_fenced() const {
  return std::ranges::any_of(neighbours_, [&](int rank) {
    return controls_[rank] && controls_[rank]->fenced.load(std::memory_order_seq_cst) != 0;
  });
}

/// Every member had finished its slices. After a fence on all ranks the counters stand still.
bool Engine::all_published(Work& work) {
  auto target = work.base_ + work.channel_->own->chunks;
  for (int rank = 0; rank < team_.size(); ++rank) {
    const auto* peer = peer_of(work, rank);
    if (!peer || peer->reduced.load(std::memory_order_acquire) < target) return false;
  }
  return true;
}

bool Engine::settle(Work& work) {
  std::lock_guard lock(work_mutex_);
  progress();  // takes what was submitted after the fence, and fails it
  if (work.state() == Work::State::done) return true;
  if (!work.channel_ || !work.region_->ready() || !all_published(work)) return false;
  if (work.channel_->own->shape.memory == Memory::plain)
    while (work.copied_out_ < work.channel_->ring.chunks) copy_out(work, work.copied_out_++);
  add_measured(work);
  work.state_.store(Work::State::done, std::memory_order_release);
  return true;
}

std::optional<std::vector<std::string>> Engine::settle_exchange() {
  std::lock_guard lock(rows_.mutex());
  return rows_.settle();
}

std::optional<std::string> Engine::published_row(int rank) {
  std::lock_guard lock(rows_.mutex());
  return rows_.published_by(rank);
}

std::optional<double> Engine::published_weight(Work& work, int rank) {
  std::lock_guard lock(work_mutex_);
  if (!work.channel_) return std::nullopt;
  const auto* peer = peer_of(work, rank);
  auto target = work.base_ + work.channel_->own->chunks;
  if (!peer || peer->submitted.load(std::memory_order_acquire) < target) return std::nullopt;
  return peer->weight[work.use_ % 2];
}

void Engine::complain(const Error& why) {
  auto length = std::min(why.message.size(), sizeof(control_->complaint));
  std::memcpy(control_->complaint, why.message.data(), length);
  control_->complaint_length.store(static_cast<std::uint32_t>(length), std::memory_order_release);
  if (bridge_) bridge_->publish_state(*control_);
}

std::optional<Error> Engine::complaint_of_others() const {
  for (int rank = 0; rank < team_.size(); ++rank) {
    const auto& control = *controls_[rank];
    auto length =
        std::min<std::size_t>(control.complaint_length.load(std::memory_order_acquire), sizeof(control.complaint));
    if (rank != team_.rank && length) return Error{Code::mismatch, std::string(control.complaint, length)};
  }
  return std::nullopt;
}

Error Engine::departure(int rank) { return {Code::peer_lost, fmt::format("rank {} has left the job", rank)}; }

void Engine::depart(int rank) {
  departures_.note(rank);
  nudge();
}

}  // namespace pliant::collective
