// How operations move forward; see the table in engine.h.
#include <algorithm>
#include <vector>

#include "base/fault.h"
#include "collective/diagnosis.h"
#include "collective/engine.h"
#include "collective/kernels.h"

namespace pliant::collective {
namespace {

// Results are written past the caches if they, or all memory that is registered, are larger than caches are.
constexpr std::size_t kStreamFrom = 4 << 20;
constexpr std::size_t kStreamRegion = 32 << 20;
constexpr std::size_t kAbortEvery = 1 << 20;  // bytes between two looks at the fence

bool is_integer(Dtype dtype) { return dtype >= Dtype::i8; }

/// What a host makes of its ranks' contributions, before those of all hosts become the result. The mean of floats is
/// that of hosts' means, weighted, so that large numbers of ranks do not need larger numbers; integers are divided
/// once.
Op partial_op(Dtype dtype, Op op) { return op == Op::mean && is_integer(dtype) ? Op::sum : op; }

Recipe final_recipe(Dtype dtype, Op op, std::span<const double> weights, std::size_t contributors,
                    std::span<double> shares) {
  if (op != Op::mean) return recipe_for(dtype, op, weights, shares);
  if (!is_integer(dtype)) return recipe_for(dtype, Op::weighted_mean, weights, shares);
  auto recipe = recipe_for(dtype, Op::mean, weights, shares);
  recipe.factor = contributors ? 1.0 / static_cast<double>(contributors) : 1.0;
  return recipe;
}

}  // namespace

const Channel* Engine::peer_of(Work& work, int rank) {
  auto& channel = *work.channel_;
  if (channel.peers[rank]) return channel.peers[rank];
  const auto* theirs = directories_[rank].find(channel.name, work.use_);
  if (compare(*channel.own, work.use_, theirs) != Match::agreed) return nullptr;
  channel.peers[rank] = theirs;
  if (std::find(channel.peers.begin(), channel.peers.end(), nullptr) == channel.peers.end())
    channel.agreed.store(true, std::memory_order_release);
  return theirs;
}

/// True once the counters of all these ranks have reached the target; remembers how far it got, so that each is asked
/// once.
bool Engine::all_have(Work& work, const Ranks& ranks, std::atomic<std::uint64_t> Channel::*counter,
                      std::uint64_t target) {
  for (; work.seen_ < static_cast<int>(ranks.size()); ++work.seen_) {
    const auto* peer = peer_of(work, ranks[work.seen_]);
    if (!peer || (peer->*counter).load(std::memory_order_acquire) < target) return false;
  }
  work.seen_ = 0;
  return true;
}

/// The same without a memory, for conditions that are looked at in turns.
bool Engine::least_is(const Work& work, const Ranks& ranks, std::atomic<std::uint64_t> Channel::*counter,
                      std::uint64_t target) {
  for (int rank : ranks)
    if ((work.channel_->peers[rank]->*counter).load(std::memory_order_acquire) < target) return false;
  return true;
}

void Engine::reduce_pieces(Work& work, const std::vector<Piece>& pieces, std::size_t in_shift, std::byte* result,
                           bool streaming) {
  if (pieces.empty()) return;
  auto& channel = *work.channel_;
  const auto& shape = channel.own->shape;
  contributions_.clear();
  for (int rank : neighbours_) {
    auto weight = channel.peers[rank]->weight[work.use_ % 2];
    if (!(weight > 0)) continue;
    contributions_.add(work.region_->input_of(topology_.place_of[rank]) + in_shift, weight,
                       shape.op == Op::weighted_mean ? weight : 1);
  }
  auto recipe = recipe_for(shape.dtype, bridge_ ? partial_op(shape.dtype, shape.op) : shape.op,
                           contributions_.weights(), contributions_.shares());
  recipe.streaming = streaming && !bridge_;
  recipe.squares = work.measure_ != Measure::nothing && !bridge_;
  recipe.spread = work.measure_ == Measure::spread;
  for (const auto& piece : pieces) {
    for (auto at = piece.begin, end = at; at < piece.end; at = end) {
      if (fenced()) return;
      end = std::min({at + kAbortEvery, piece.end, end_of_part(work, at)});
      auto elements = (end - at) / size_of(shape.dtype);
      note(work, at, contributions_.reduce_at(recipe, at, result + at, elements), bridge_ ? 0 : elements);
      fault::point("mid_slice");
    }
  }
}

std::size_t Engine::end_of_part(const Work& work, std::size_t at) {
  if (work.parts_.empty()) return SIZE_MAX;
  auto next = std::ranges::upper_bound(*work.marks_, at);
  return next == work.marks_->end() ? SIZE_MAX : *next;
}

void Engine::note(Work& work, std::size_t at, const Measured& measured, std::size_t final_elements) {
  work.measured_ += measured;
  if (work.parts_.empty()) return;
  auto& part =
      work.parts_[static_cast<std::size_t>(std::ranges::upper_bound(*work.marks_, at) - work.marks_->begin()) - 1];
  part.measured += measured;
  part.count += final_elements;
}

Engine::Moved Engine::advance_registered(Work& work) {
  auto& channel = *work.channel_;
  auto target = work.base_ + 1;
  auto moved = Moved::no;
  if (work.reduced_ == 0 && work.crossing_ == 0) {
    if (!work.region_->ready() || !all_have(work, neighbours_, &Channel::submitted, target)) return Moved::no;
    if (bridge_ && !may_cross(work, 0)) return Moved::no;
    auto* result = static_cast<std::byte*>(work.result_) - channel.own->shape.offset;
    auto bytes = channel.own->shape.count * size_of(channel.own->shape.dtype);
    bool given_alone = bridge_ && neighbours_.size() == 1;  // then it crosses as it is
    if (!given_alone && (team_.size() > 1 || work.measure_ != Measure::nothing || channel.own->shape.op == Op::product))
      reduce_pieces(work, channel.pieces, 0, result,
                    bytes >= kStreamFrom || work.region_->bytes_in_all() >= kStreamRegion);
    if (fenced()) return Moved::no;  // perhaps in the middle of a piece
    if (bridge_)
      begin_crossing(work, 0, result);
    else
      publish_reduced(work, 1);
    moved = Moved::yes;
  }
  if (work.reduced_ == 0) {
    if (!crossed(work) || fenced()) return moved;
    publish_reduced(work, 1);
    end_crossing(work);
    moved = Moved::yes;
  }
  return conclude(work) == Moved::yes ? Moved::yes : moved;
}

void Engine::publish_reduced(Work& work, std::uint64_t chunks) {
  work.channel_->own->measured[work.use_ % 2] = work.measured_;
  work.reduced_ = chunks;
  publish(*work.channel_, Counter::reduced, work.base_ + chunks, work.use_);
}

/// Everything is reduced and copied here: is it everywhere?
Engine::Moved Engine::conclude(Work& work) {
  auto& channel = *work.channel_;
  auto target = work.base_ + channel.own->chunks;
  if (!work.everywhere_) {
    if (!all_have(work, everybody_, &Channel::reduced, target)) return Moved::no;
    add_measured(work);
    work.everywhere_ = true;
    // With the last chunk of plain memory, or with a later use that was seen everywhere before this one was looked at.
    bool told = channel.own->copied.load(std::memory_order_relaxed) >= target;
    if (bridge_ && !work.confirmed_later_ && !told) publish(channel, Counter::copied, target, work.use_);
  }
  if (bridge_ && !work.confirmed_later_ && !all_have(work, everybody_, &Channel::copied, target)) return Moved::no;
  if (!bridge_ && !work.confirmed_later_ && any_fenced()) return Moved::no;  // the view's end is on its way here
  finish(work);
  return Moved::yes;
}

/// From what all have published, in the order of ranks.
void Engine::add_measured(Work& work) {
  work.measured_ = {};
  for (const auto* peer : work.channel_->peers) work.measured_ += peer->measured[work.use_ % 2];
}

// ---- between hosts ----

bool Engine::may_cross(Work& work, std::uint64_t chunk) {
  auto& channel = *work.channel_;
  if (!channel.agreed.load(std::memory_order_relaxed))
    for (int rank : everybody_)
      if (!peer_of(work, rank)) return false;
  auto next = work.base_ + chunk + 1, ahead = channel.crossing.ahead();
  return next <= ahead || least_is(work, everybody_, &Channel::reduced, next - ahead);
}

void Engine::begin_crossing(Work& work, std::uint64_t chunk, std::byte* result) {
  auto& channel = *work.channel_;
  double weight = 0;
  std::size_t contributors = 0;
  for (int rank : neighbours_) {
    auto own = channel.peers[rank]->weight[work.use_ % 2];
    if (!(own > 0)) continue;
    weight += own;
    ++contributors;
  }
  const auto* given = neighbours_.size() == 1 ? work.region_->input() : result;
  work.crossings_.push_back(bridge_->open({channel.index, work.base_ + chunk}, channel.peers,
                                          {given, result, work.region_, weight, contributors}));
  work.crossing_ = chunk + 1;
}

void Engine::finalise(Work& work, Crossing& crossing, Leg& leg) {
  const auto& shape = work.channel_->own->shape;
  contributions_.clear();
  std::size_t contributors = 0;
  auto add = [&](int host, const std::byte* bytes, double weight, std::size_t count) {
    contributors += count;
    if (count == 0) return;
    auto own = shape.op == Op::weighted_mean ? weight : static_cast<double>(count);
    // Where there are several ranks they have looked at their contributions themselves.
    contributions_.add(bytes, own, topology_.hosts[host].size() == 1 ? own : 0);
  };
  std::ranges::sort(leg.partials, {}, &Partial::host);
  auto next = leg.partials.begin();
  for (int host = 0; host < topology_.host_count(); ++host) {
    if (host == topology_.host_of[team_.rank]) {
      add(host, crossing.given + leg.at.piece.begin, crossing.own_weight, crossing.own_contributors);
    } else {
      add(host, next->bytes.get(), next->weight, next->contributors);
      ++next;
    }
  }
  auto recipe = final_recipe(shape.dtype, shape.op, contributions_.weights(), contributors, contributions_.shares());
  recipe.squares = work.measure_ != Measure::nothing;
  recipe.spread = work.measure_ == Measure::spread;
  for (auto at = leg.at.piece.begin, end = at; at < leg.at.piece.end; at = end) {
    end = std::min(leg.at.piece.end, end_of_part(work, at));
    auto elements = (end - at) / size_of(shape.dtype);
    auto measured = contributions_.reduce_at(recipe, at - leg.at.piece.begin, crossing.result + at, elements);
    note(work, at, measured, elements);
  }
  fault::point("mid_slice");
  leg.done = true;
  bridge_->send_final(crossing, leg);
}

bool Engine::cross(Work& work, Crossing& crossing) {
  bool all = bridge_->collect(crossing);
  auto others = static_cast<std::size_t>(topology_.host_count() - 1);
  for (auto& leg : crossing.legs) {
    if (!leg.final_here || leg.done) continue;
    if (leg.partials.size() == others && !fenced()) finalise(work, crossing, leg);
    all = all && leg.done;
  }
  return all;
}

/// The oldest crossing is complete.
bool Engine::crossed(Work& work) { return !work.crossings_.empty() && cross(work, *work.crossings_.front()); }

void Engine::end_crossing(Work& work) {
  bridge_->close(*work.crossings_.front());
  work.crossings_.erase(work.crossings_.begin());
}

void Engine::copy_out(Work& work, std::uint64_t chunk) {
  const auto& channel = *work.channel_;
  const auto& ring = channel.ring;
  auto bytes = channel.own->shape.count * size_of(channel.own->shape.dtype);
  auto slot = ((work.base_ + chunk) % static_cast<std::uint64_t>(ring.slots)) * ring.chunk;
  auto begin = chunk * ring.chunk;
  copy(work.out_ + begin, work.region_->result(0) + slot, std::min(ring.chunk, bytes - begin), bytes >= kStreamFrom);
}

Engine::Moved Engine::advance_plain(Work& work) {
  auto& channel = *work.channel_;
  if (!work.region_->ready()) return Moved::no;
  if (!channel.agreed.load(std::memory_order_relaxed))
    for (int rank : everybody_)
      if (!peer_of(work, rank)) return Moved::no;
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
  // There is room for the weights of two uses: the one before the last must be over with when this one begins.
  auto before_last = work.base_ > ring.chunks ? work.base_ - ring.chunks : 0;
  auto may_copy_in = [&](std::uint64_t chunk) {
    return least_is(work, neighbours_, &Channel::reduced, chunk ? freed(chunk) : std::max(freed(0), before_last));
  };
  // Of two uses in flight the earlier one publishes all of its chunks first: counters tell of everything below them.
  auto is_next = [&](const std::atomic<std::uint64_t>& counter, std::uint64_t chunk) {
    return counter.load(std::memory_order_relaxed) == work.base_ + chunk;
  };
  bool any = false;
  for (bool moved = true; moved && !fenced(); any = any || moved) {
    moved = false;
    if (auto c = work.copied_in_; c < ring.chunks && is_next(channel.own->submitted, c) && may_copy_in(c)) {
      if (c == 0) channel.own->weight[work.use_ % 2] = work.weight_;
      copy(work.region_->input() + slot_of(c), work.in_ + c * ring.chunk, size_of_chunk(c), false);
      work.copied_in_ = c + 1;
      publish(channel, Counter::submitted, work.base_ + c + 1, work.use_);
      moved = true;
    }
    if (auto c = bridge_ ? work.crossing_ : work.reduced_;
        c < work.copied_in_ && least_is(work, neighbours_, &Channel::submitted, work.base_ + c + 1) &&
        least_is(work, neighbours_, &Channel::copied, freed(c)) &&
        (bridge_ ? may_cross(work, c) : is_next(channel.own->reduced, c))) {
      auto begin = slot_of(c);
      // Even parts of this very chunk: the last one of a message may be short. Parts are whole pages of the slot,
      // whose pages belong to ranks by the region's stripes.
      auto end = begin + size_of_chunk(c);
      auto place = topology_.place_of[team_.rank];
      if (!bridge_ || neighbours_.size() > 1)
        reduce_pieces(work, pieces_of(work.region_->stripes(), place, begin, end), 0, work.region_->result(0), false);
      if (fenced()) break;
      if (bridge_)
        begin_crossing(work, c, work.region_->result(0));
      else
        publish_reduced(work, c + 1);
      moved = true;
    }
    if (bridge_ && crossed(work) && is_next(channel.own->reduced, work.reduced_) && !fenced()) {
      publish_reduced(work, work.reduced_ + 1);
      end_crossing(work);
      moved = true;
    }
    if (auto c = work.copied_out_; c < work.reduced_ && is_next(channel.own->copied, c) &&
                                   least_is(work, neighbours_, &Channel::reduced, work.base_ + c + 1)) {
      copy_out(work, c);
      work.copied_out_ = c + 1;
      publish(channel, Counter::copied, work.base_ + c + 1, work.use_);
      moved = true;
    }
  }
  if (work.copied_out_ < ring.chunks) return any ? Moved::yes : Moved::no;
  return conclude(work) == Moved::yes || any ? Moved::yes : Moved::no;
}

Engine::Moved Engine::advance(Work& work) {
  if (fenced()) {
    Diagnosis diagnosis(*this);
    auto mismatch = diagnosis.mismatch_of(work);
    fail(work, mismatch ? *mismatch : complaint_of_others().value_or(fence_.reason()));
    return Moved::yes;
  }
  // Read before the counters: what a rank published before it left is seen below.
  int departed = departed_before(work);
  auto moved = work.channel_->own->shape.memory == Memory::registered ? advance_registered(work) : advance_plain(work);
  if (departed < 0 || moved == Moved::yes) return moved;
  fail(work, complaint_of_others().value_or(departure(departed)));
  return Moved::yes;
}

int Engine::departed_before(Work& work) {
  return departures_.first_of([&](int rank) {
    auto target = work.base_ + work.channel_->own->chunks;
    const auto* peer = peer_of(work, rank);
    return !peer || peer->submitted.load(std::memory_order_acquire) < target ||
           peer->reduced.load(std::memory_order_acquire) < target;
  });
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

/// `waiting_here`: how many of the threads in wait_until() are the caller. `last`: it will sleep if nothing moves.
bool Engine::try_progress(int waiting_here, bool last) {
  std::unique_lock lock(work_mutex_, std::try_to_lock);
  if (!lock && last) {
    // Whoever works may have looked at this caller's operation before the news came for which the caller looks now. It
    // rings when it has finished; unless it has by now.
    passed_by_.exchange(true, std::memory_order_seq_cst);
    (void)lock.try_lock();
  }
  if (!lock) return false;
  bool moved = progress();
  fault::point("worked");
  lock.unlock();
  bool somebody_passed = passed_by_.exchange(false, std::memory_order_seq_cst);
  if (somebody_passed || (moved && helpers_.load(std::memory_order_seq_cst) > waiting_here))
    ring();  // theirs may be done now
  return moved;
}

}  // namespace pliant::collective
