#include "collective/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "base/system.h"
#include "collective/diagnosis.h"
#include "net/futex.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kStreamFrom = 4 << 20;   // results from this size on are written past the caches
constexpr std::size_t kAbortEvery = 1 << 20;   // bytes between two looks at the fence
constexpr Nanos kNap = 100ms;                  // the longest sleep between two looks around
constexpr std::uint32_t kBlockedOnRows = UINT32_MAX;

Error departure_of(int rank) { return {Code::peer_lost, fmt::format("rank {} has left the job", rank)}; }

}  // namespace

Engine::Engine(Team team, Control* control, GroupOptions options)
    : team_(std::move(team)),
      control_(control),
      options_(std::move(options)),
      crowding_(team_.size() > usable_cores()),
      controls_(team_.members.size(), nullptr),
      directories_(team_.members.size()),
      departed_(team_.members.size()) {
  add_peer(team_.rank, control_);
}

Engine::~Engine() {
  stopping_ = true;
  wake_background();
  if (background_.joinable()) background_.join();
}

void Engine::add_peer(int rank, const Control* control) {
  controls_[rank] = control;
  directories_[rank] = PeerDirectory(control);
}

void Engine::start() {
  background_ = std::thread([this] { run_background(); });
}

// ---- submitting ----

Result<LocalChannel*> Engine::channel_for(const Request& request, const RegionMaker& plain_region) {
  bool registered = request.region != nullptr;
  ChannelShape shape{request.count, registered ? request.offset : 0, request.dtype, request.op,
                     registered ? Memory::registered : Memory::plain};
  auto& history = channels_[std::string(request.name)];
  if (!history.empty()) {
    auto& newest = *history.back();
    if (newest.own->shape == shape && (!registered || newest.region == request.region)) return &newest;
  }
  auto index = control_->channels.load(std::memory_order_relaxed);
  if (index == kMaxChannels) return Error{Code::invalid, fmt::format("more than {} names of reductions", kMaxChannels)};

  auto channel = std::make_unique<LocalChannel>();
  channel->name = request.name;
  channel->index = index;
  channel->own = &control_->channel[index];
  channel->region = request.region;
  channel->peers.resize(team_.members.size(), nullptr);
  std::uint64_t first_use = history.empty() ? 0 : history.back()->own->first_use + history.back()->uses;
  auto bytes = request.count * size_of(request.dtype);
  if (registered) {
    channel->pieces = pieces_of(request.region->stripes(), team_.rank, request.offset, request.offset + bytes);
  } else {
    channel->ring = ring_for(bytes, team_.size());
    auto region = plain_region(fmt::format("~{}#{}", request.name.substr(0, 100), first_use),
                               channel->ring.chunk * static_cast<std::size_t>(channel->ring.slots));
    if (!region.ok()) return region.error();
    channel->region = std::move(region).value();
  }
  auto& entry = *channel->own;
  entry.first_use = first_use;
  entry.chunks = registered ? 1 : channel->ring.chunks;
  entry.shape = shape;
  entry.name_length = static_cast<std::uint8_t>(request.name.size());
  std::memcpy(entry.name, request.name.data(), request.name.size());
  entry.region_length = static_cast<std::uint8_t>(std::min(channel->region->name().size(), kMaxChannelName));
  std::memcpy(entry.region, channel->region->name().data(), entry.region_length);
  control_->channels.store(index + 1, std::memory_order_release);
  history.push_back(std::move(channel));
  return history.back().get();
}

Result<std::shared_ptr<Work>> Engine::submit(const Request& request, const RegionMaker& plain_region) {
  auto bytes = request.count * size_of(request.dtype);
  if (request.name.empty() || request.name.size() > kMaxChannelName)
    return Error{Code::invalid, fmt::format("a reduction needs a name of 1 to {} characters", kMaxChannelName)};
  if (request.count == 0) return Error{Code::invalid, fmt::format("reduction '{}' has no elements", request.name)};
  if (request.region && (request.offset % size_of(request.dtype) != 0 || request.offset > request.region->bytes() ||
                         bytes > request.region->bytes() - request.offset))
    return Error{Code::invalid, fmt::format("reduction '{}' is outside of region '{}'", request.name,
                                            request.region->name())};
  if (!request.region && (!request.in || !request.out))
    return Error{Code::invalid, fmt::format("reduction '{}' has no memory", request.name)};

  auto work = std::make_shared<Work>();
  {
    std::lock_guard lock(submit_mutex_);
    auto found = channel_for(request, plain_region);
    if (!found.ok()) return found.error();
    auto& channel = *found.value();
    work->channel_ = &channel;
    work->use_ = channel.own->first_use + channel.uses;
    work->base_ = channel.uses * channel.own->chunks;
    work->in_ = static_cast<const std::byte*>(request.in);
    work->out_ = static_cast<std::byte*>(request.out);
    work->measure_ = request.squares;
    if (request.region) work->result_ = request.region->result(static_cast<int>(work->use_ % 2)) + request.offset;
    channel.own->weight[work->use_ % 2] = request.weight;
    ++channel.uses;
    inbox_.push_back(work);
    in_flight_.fetch_add(1, std::memory_order_relaxed);
    if (request.region) channel.own->submitted.store(work->base_ + 1, std::memory_order_seq_cst);
  }
  if (request.region) ring();
  if (!request.caller_waits) wake_background();
  return work;
}

// ---- bells ----

void Engine::ring() {
  control_->bell.fetch_add(1, std::memory_order_seq_cst);
  for (const auto* control : controls_) {
    if (control->sleepers.load(std::memory_order_seq_cst) == 0) continue;
    net::futex_wake(&control_->bell);
    return;
  }
}

void Engine::publish(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  counter.store(value, std::memory_order_seq_cst);
  ring();
}

void Engine::wake_background() {
  work_bell_.fetch_add(1, std::memory_order_seq_cst);
  if (background_sleeps_.load(std::memory_order_seq_cst)) net::futex_wake(&work_bell_);
}

void Engine::nudge() {
  ring();
  wake_background();
}

// ---- moving forward ----

const Channel* Engine::peer_of(Work& work, int rank) {
  auto& channel = *work.channel_;
  if (channel.peers[rank]) return channel.peers[rank];
  const auto* theirs = directories_[rank].find(channel.name, work.use_);
  if (compare(*channel.own, work.use_, theirs) == Match::agreed) channel.peers[rank] = theirs;
  return channel.peers[rank];
}

/// True once every rank's counter has reached the target; remembers how far it got, so that each rank is asked once.
bool Engine::all_have(Work& work, std::atomic<std::uint64_t> Channel::* counter, std::uint64_t target) {
  for (; work.seen_ < team_.size(); ++work.seen_) {
    const auto* peer = peer_of(work, work.seen_);
    if (!peer || (peer->*counter).load(std::memory_order_acquire) < target) return false;
  }
  work.seen_ = 0;
  return true;
}

/// The same without a memory, for conditions that are looked at in turns.
bool Engine::least_is(const Work& work, std::atomic<std::uint64_t> Channel::* counter, std::uint64_t target) {
  for (const auto* peer : work.channel_->peers)
    if ((peer->*counter).load(std::memory_order_acquire) < target) return false;
  return true;
}

void Engine::reduce_pieces(Work& work, const std::vector<Piece>& pieces, std::size_t in_shift, std::byte* result,
                           std::size_t total) {
  if (pieces.empty()) return;
  auto& channel = *work.channel_;
  const auto& shape = channel.own->shape;
  auto& [weights, shares, inputs, contributions] = scratch_;
  weights.clear();
  inputs.clear();
  for (int rank = 0; rank < team_.size(); ++rank) {
    auto weight = channel.peers[rank]->weight[work.use_ % 2];
    if (!(weight > 0)) continue;
    weights.push_back(weight);
    inputs.push_back(channel.region->input_of(rank) + in_shift);
  }
  shares.resize(weights.size());
  contributions.resize(weights.size());
  auto recipe = recipe_for(shape.dtype, shape.op, weights, shares);
  recipe.streaming = total >= kStreamFrom;
  recipe.squares = work.measure_;
  for (const auto& piece : pieces) {
    for (auto at = piece.begin; at < piece.end; at += kAbortEvery) {
      if (fenced_.load(std::memory_order_relaxed)) return;
      auto size = std::min(kAbortEvery, piece.end - at);
      for (std::size_t k = 0; k < inputs.size(); ++k) contributions[k] = {inputs[k] + at, shares[k]};
      work.squares_ += reduce(recipe, result + at, contributions, size / size_of(shape.dtype));
    }
  }
}

Engine::Moved Engine::advance_registered(Work& work) {
  auto& channel = *work.channel_;
  auto target = work.base_ + 1;
  auto moved = Moved::no;
  if (work.reduced_ == 0) {
    if (!channel.region->ready() || !all_have(work, &Channel::submitted, target)) return Moved::no;
    auto* result = static_cast<std::byte*>(work.result_) - channel.own->shape.offset;
    auto bytes = channel.own->shape.count * size_of(channel.own->shape.dtype);
    if (team_.size() > 1 || work.measure_ || channel.own->shape.op == Op::product)
      reduce_pieces(work, channel.pieces, 0, result, bytes);
    channel.own->squares[work.use_ % 2] = work.squares_;
    work.reduced_ = 1;
    publish(channel.own->reduced, target);
    moved = Moved::yes;
  }
  if (!all_have(work, &Channel::reduced, target)) return moved;
  work.squares_ = 0;
  for (const auto* peer : channel.peers) work.squares_ += peer->squares[work.use_ % 2];
  finish(work);
  return Moved::yes;
}

Engine::Moved Engine::advance_plain(Work& work) {
  auto& channel = *work.channel_;
  if (!channel.region->ready() || work.seen_ < team_.size()) {
    if (!channel.region->ready()) return Moved::no;
    for (; work.seen_ < team_.size(); ++work.seen_)
      if (!peer_of(work, work.seen_)) return Moved::no;
  }
  const auto& ring = channel.ring;
  auto bytes = channel.own->shape.count * size_of(channel.own->shape.dtype);
  auto slots = static_cast<std::uint64_t>(ring.slots);
  auto slot_of = [&](std::uint64_t chunk) { return ((work.base_ + chunk) % slots) * ring.chunk; };
  auto size_of_chunk = [&](std::uint64_t chunk) { return std::min(ring.chunk, bytes - chunk * ring.chunk); };
  // Chunk g uses the slot of chunk g - slots: that one must be over with, as far as the action touches it.
  auto freed = [&](std::uint64_t chunk) {
    auto next = work.base_ + chunk + 1;
    return next > slots ? next - slots : 0;
  };
  bool streaming = bytes >= kStreamFrom;
  bool any = false;
  for (bool moved = true; moved && !fenced_.load(std::memory_order_relaxed); any = any || moved) {
    moved = false;
    if (auto c = work.copied_in_; c < ring.chunks && least_is(work, &Channel::reduced, freed(c))) {
      copy(channel.region->input() + slot_of(c), work.in_ + c * ring.chunk, size_of_chunk(c), false);
      work.copied_in_ = c + 1;
      publish(channel.own->submitted, work.base_ + c + 1);
      moved = true;
    }
    if (auto c = work.reduced_; c < work.copied_in_ && least_is(work, &Channel::submitted, work.base_ + c + 1) &&
                                least_is(work, &Channel::copied, freed(c))) {
      auto begin = slot_of(c);
      // Even parts of this very chunk: the last one of a message may be short. Parts are whole pages of the slot,
      // whose pages belong to ranks by the region's stripes.
      reduce_pieces(work, pieces_of(channel.region->stripes(), team_.rank, begin, begin + size_of_chunk(c)), 0,
                    channel.region->result(0), 0);
      channel.own->squares[work.use_ % 2] = work.squares_;
      work.reduced_ = c + 1;
      publish(channel.own->reduced, work.base_ + c + 1);
      moved = true;
    }
    if (auto c = work.copied_out_; c < work.reduced_ && least_is(work, &Channel::reduced, work.base_ + c + 1)) {
      copy(work.out_ + c * ring.chunk, channel.region->result(0) + slot_of(c), size_of_chunk(c), streaming);
      work.copied_out_ = c + 1;
      publish(channel.own->copied, work.base_ + c + 1);
      moved = true;
    }
  }
  if (work.copied_out_ < ring.chunks) return any ? Moved::yes : Moved::no;
  work.squares_ = 0;
  for (const auto* peer : channel.peers) work.squares_ += peer->squares[work.use_ % 2];
  finish(work);
  return Moved::yes;
}

Engine::Moved Engine::advance(Work& work) {
  if (fenced_.load(std::memory_order_acquire)) {
    Diagnosis diagnosis(*this);
    auto mismatch = diagnosis.mismatch_of(work);
    fail(work, mismatch ? *mismatch : complaint_of_others().value_or(fence_reason()));
    return Moved::yes;
  }
  // Read before the counters: what a rank published before it left is seen below.
  int departed = any_departed_.load(std::memory_order_acquire) ? departed_before(work) : -1;
  auto moved =
      work.channel_->own->shape.memory == Memory::registered ? advance_registered(work) : advance_plain(work);
  if (departed < 0 || moved == Moved::yes) return moved;
  fail(work, complaint_of_others().value_or(departure_of(departed)));
  return Moved::yes;
}

int Engine::departed_before(Work& work) {
  auto target = work.base_ + work.channel_->own->chunks;
  for (int rank = 0; rank < team_.size(); ++rank) {
    if (!departed_[rank].load(std::memory_order_acquire)) continue;
    const auto* peer = peer_of(work, rank);
    if (!peer || peer->submitted.load(std::memory_order_acquire) < target ||
        peer->reduced.load(std::memory_order_acquire) < target)
      return rank;
  }
  return -1;
}

int Engine::departed_before_row(std::uint64_t rows) const {
  for (int rank = 0; rank < team_.size(); ++rank)
    if (departed_[rank].load(std::memory_order_acquire) &&
        controls_[rank]->rows.load(std::memory_order_acquire) < rows)
      return rank;
  return -1;
}

void Engine::finish(Work& work) {
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  work.state_.store(Work::State::done, std::memory_order_release);
}

void Engine::fail(Work& work, Error why) {
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  work.error_ = std::move(why);
  work.state_.store(Work::State::failed, std::memory_order_release);
}

bool Engine::progress() {
  {
    std::lock_guard lock(submit_mutex_);
    active_.insert(active_.end(), inbox_.begin(), inbox_.end());
    inbox_.clear();
  }
  bool moved = false;
  for (auto& work : active_) moved = advance(*work) == Moved::yes || moved;
  if (moved) std::erase_if(active_, [](const auto& work) { return work->state() != Work::State::pending; });
  return moved;
}

bool Engine::try_progress() {
  std::unique_lock lock(work_mutex_, std::try_to_lock);
  if (!lock) return false;
  bool moved = progress();
  lock.unlock();
  if (moved && helpers_.load(std::memory_order_relaxed) > 1) ring();  // another caller may wait for what is done now
  return moved;
}

// ---- waiting ----

template <class Done>
void Engine::sleep(const Done& done) {
  std::vector<net::FutexWord> words;
  words.reserve(controls_.size() + 1);
  control_->sleepers.fetch_add(1, std::memory_order_seq_cst);
  for (const auto* control : controls_) words.push_back({&control->bell, control->bell.load(std::memory_order_seq_cst)});
  // Bells are read before this last look, so what comes after it wakes us.
  if (!try_progress() && !done()) net::futex_wait_any(words, kNap);
  control_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

template <class Done>
Status Engine::wait_until(const Done& done, std::uint32_t blocked_on) {
  if (done()) return {};
  helpers_.fetch_add(1, std::memory_order_seq_cst);
  Status status;
  {
    Waiter waiter(crowding_);
    std::optional<Diagnosis> diagnosis;
    while (!done()) {
      if (blocked_on == kBlockedOnRows) {
        if (fenced_.load(std::memory_order_acquire)) {
          status = complaint_of_others().value_or(fence_reason());
          break;
        }
        if (int rank = any_departed_.load(std::memory_order_acquire) ? departed_before_row(rows_) : -1; rank >= 0) {
          status = complaint_of_others().value_or(departure_of(rank));
          break;
        }
      }
      if (try_progress()) {
        waiter.progressed();
        continue;
      }
      if (waiter.pause()) continue;
      if (!diagnosis) {
        diagnosis.emplace(*this);
        control_->blocked_on.store(blocked_on, std::memory_order_release);
        control_->blocked_turns.fetch_add(1, std::memory_order_release);
      }
      sleep(done);
      if (auto problem = diagnosis->look(blocked_on)) {
        complain(*problem);
        fence(*problem);
      }
    }
    if (diagnosis) {
      control_->blocked_on.store(0, std::memory_order_release);
      control_->blocked_turns.fetch_add(1, std::memory_order_release);
    }
  }
  helpers_.fetch_sub(1, std::memory_order_seq_cst);
  if (in_flight_.load(std::memory_order_relaxed) > 0) wake_background();
  return status;
}

Status Engine::wait(const Work& work) {
  PLIANT_TRY(wait_until([&] { return work.state() != Work::State::pending; }, work.channel_->index + 1));
  if (work.state() == Work::State::failed) return work.error();
  return {};
}

Result<std::vector<std::string>> Engine::exchange(std::string_view row) {
  if (row.size() > kRowBytes) return Error{Code::invalid, fmt::format("a row of more than {} bytes", kRowBytes)};
  std::lock_guard lock(exchange_mutex_);
  auto at = rows_ % 2;
  std::memcpy(control_->row[at], row.data(), row.size());
  control_->row_size[at] = static_cast<std::uint32_t>(row.size());
  publish(control_->rows, ++rows_);
  int seen = 0;
  PLIANT_TRY(wait_until(
      [&] {
        while (seen < team_.size() && controls_[seen]->rows.load(std::memory_order_acquire) >= rows_) ++seen;
        return seen == team_.size();
      },
      kBlockedOnRows));
  std::vector<std::string> rows;
  rows.reserve(controls_.size());
  for (const auto* control : controls_)
    rows.emplace_back(control->row[at], std::min<std::size_t>(control->row_size[at], kRowBytes));
  return rows;
}

void Engine::run_background() {
  while (!stopping_.load(std::memory_order_acquire)) {
    auto seen = work_bell_.load(std::memory_order_seq_cst);
    bool ours = helpers_.load(std::memory_order_seq_cst) == 0 && in_flight_.load(std::memory_order_relaxed) > 0;
    if (ours && try_progress()) continue;
    background_sleeps_.store(true, std::memory_order_seq_cst);
    if (ours) {
      std::vector<net::FutexWord> words{{&work_bell_, seen}};
      control_->sleepers.fetch_add(1, std::memory_order_seq_cst);
      for (const auto* control : controls_)
        words.push_back({&control->bell, control->bell.load(std::memory_order_seq_cst)});
      if (!try_progress()) net::futex_wait_any(words, kNap);
      control_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
    } else {
      net::FutexWord word{&work_bell_, seen};
      net::futex_wait_any({&word, 1}, 10 * kNap);
    }
    background_sleeps_.store(false, std::memory_order_seq_cst);
  }
}

// ---- the end of a view ----

bool Engine::fence(Error why) {
  {
    std::lock_guard lock(fence_mutex_);
    if (fenced_.load(std::memory_order_relaxed)) return false;
    fence_error_ = why;
    fenced_.store(true, std::memory_order_release);
  }
  nudge();
  return true;
}

void Engine::complain(const Error& why) {
  auto length = std::min(why.message.size(), sizeof(control_->complaint));
  std::memcpy(control_->complaint, why.message.data(), length);
  control_->complaint_length.store(static_cast<std::uint32_t>(length), std::memory_order_release);
}

std::optional<Error> Engine::complaint_of_others() const {
  for (int rank = 0; rank < team_.size(); ++rank) {
    const auto& control = *controls_[rank];
    auto length = std::min<std::size_t>(control.complaint_length.load(std::memory_order_acquire),
                                        sizeof(control.complaint));
    if (rank != team_.rank && length) return Error{Code::mismatch, std::string(control.complaint, length)};
  }
  return std::nullopt;
}

void Engine::depart(int rank) {
  departed_[rank].store(true, std::memory_order_release);
  any_departed_.store(true, std::memory_order_release);
  nudge();
}

Error Engine::fence_reason() const {
  std::lock_guard lock(fence_mutex_);
  return fence_error_;
}

}  // namespace pliant::collective
