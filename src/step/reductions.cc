#include "step/reductions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/planted.h"
#include "collective/kernels.h"

namespace pliant::step {
namespace {

using membership::View;

/// The lowest rank of the dead one's host that is left.
bool speaks_for(std::uint64_t self, const View& before, const View& after, int dead) {
  const auto& gone = before.members[static_cast<std::size_t>(dead)];
  if (after.rank_of(gone.id) >= 0) return false;
  auto heir = std::ranges::find_if(before.members, [&](const wire::Member& member) {
    return member.host == gone.host && after.rank_of(member.id) >= 0;
  });
  if (planted("dead-twice"))
    return std::ranges::any_of(before.members, [&](const auto& m) { return m.id == self && m.host == gone.host; });
  return heir != before.members.end() && heir->id == self;
}

}  // namespace

Reductions::Reductions(const JobState& job, TransitionWatch* watch)
    : job_(job), watch_(watch), exchange_(ReductionTable::done, watch) {}

StableRegionPtr Reductions::region(const std::string& name, std::size_t bytes) {
  if (auto known = regions_[name].lock()) {
    if (known->bytes != bytes) throw Failure(Code::invalid, fmt::format("region '{}' exists already", name));
    return known;
  }
  auto made = std::make_shared<StableRegion>(StableRegion{name, bytes, group_->create_region(name, bytes).or_throw()});
  regions_[name] = made;
  return made;
}

StepReductionPtr Reductions::submit(Task task) {
  auto reduction = std::make_shared<StepReduction>(std::move(task), watch_);
  reduction->number_ = number_of(reduction->task().name);
  const auto& wanted = reduction->task();
  if (!wanted.memory && wanted.in == wanted.out && wanted.in && group_->size() > 1) {
    const auto* from = static_cast<const std::byte*>(wanted.in);
    reduction->input_.assign(from, from + wanted.count * size_of(wanted.dtype));
  }
  start(*reduction);
  all_.push_back(reduction);
  return reduction;
}

void Reductions::start(StepReduction& reduction) {
  const auto& task = reduction.task_;
  reduction.region_ = task.memory ? task.memory->region : nullptr;
  reduction.operation_ = group_
                             ->submit({.name = task.name,
                                       .dtype = task.dtype,
                                       .op = task.op,
                                       .count = task.count,
                                       .region = reduction.region_,
                                       .offset = task.offset,
                                       .in = task.in,
                                       .out = task.out,
                                       .weight = task.weight,
                                       .measure = task.measure,
                                       .marks = task.marks,
                                       .confirmed_later = task.with_step,
                                       .caller_waits = task.caller_waits})
                             .or_throw();
}

void Reductions::start_again(StepReduction& reduction) {
  reduction.state_.on(ReductionTable::repeat);
  if (!reduction.input_.empty()) std::memcpy(reduction.task_.out, reduction.input_.data(), reduction.input_.size());
  start(reduction);
}

/// The same on all workers for what is the same.
std::uint64_t Reductions::number_of(const std::string& name) {
  return combine(combine(combine(hash_name(name), job_.loop), job_.step), uses_[name]++);
}

Status Reductions::wait(StepReduction& reduction) {
  if (reduction.done()) return {};
  PLIANT_TRY(group_->wait(reduction.operation_));
  reduction.state_.on(ReductionTable::completed);
  return {};
}

Status Reductions::wait_for_step() {
  for (const auto& reduction : all_)
    if (reduction->task().with_step) PLIANT_TRY(wait(*reduction));
  return {};
}

Status Reductions::wait_for_all() {
  for (const auto& reduction : all_) PLIANT_TRY(wait(*reduction));
  return {};
}

void Reductions::forget_step() {
  std::erase_if(all_, [](const StepReductionPtr& reduction) { return reduction->task().with_step; });
}

void Reductions::forget_done() {
  std::erase_if(all_,
                [](const StepReductionPtr& reduction) { return reduction->done() || reduction.use_count() == 1; });
}

// ---- an exchange of rows ----

void Reductions::begin_exchange() {
  exchange_ = Machine<ReductionTable>(ReductionTable::running, watch_);
  exchange_number_ = number_of("~rows");
  rows_.clear();
}

Status Reductions::try_exchange(std::string_view row) {
  auto rows = group_->exchange(row);
  if (!rows.ok()) return rows.error();
  rows_ = std::move(rows).value();
  PLIANT_TRY(group_->confirm());
  exchange_.on(ReductionTable::completed);
  return {};
}

// ---- from view to view ----

void Reductions::take_stock() {
  if (!group_) return;
  for (const auto& reduction : all_) {
    if (reduction->done() && !reduction->task().with_step) continue;  // all have it
    if (reduction->state_.is_one_of({ReductionTable::held, ReductionTable::lacking})) continue;
    bool held = reduction->done() || group_->settle(reduction->operation_);
    reduction->state_.on(held ? ReductionTable::interrupted_whole : ReductionTable::interrupted_short);
  }
  if (!exchange_.is(ReductionTable::running)) return;
  if (rows_.empty()) rows_ = group_->settle_exchange().value_or(Rows());
  exchange_.on(rows_.empty() ? ReductionTable::interrupted_short : ReductionTable::interrupted_whole);
}

bool Reductions::step_held() const {
  return std::ranges::none_of(all_, [](const StepReductionPtr& reduction) {
    return reduction->task().with_step && reduction->state_.is(ReductionTable::lacking);
  });
}

std::vector<std::uint64_t> Reductions::lacking() const {
  std::vector<std::uint64_t> numbers;
  for (const auto& reduction : all_)
    if (!reduction->task().with_step && reduction->state_.is(ReductionTable::lacking))
      numbers.push_back(reduction->number_);
  if (exchange_.is(ReductionTable::lacking)) numbers.push_back(exchange_number_);
  return numbers;
}

std::vector<std::shared_ptr<collective::Region>> Reductions::renew_regions() {
  std::vector<std::shared_ptr<collective::Region>> before;
  std::erase_if(regions_, [](const auto& entry) { return entry.second.expired(); });
  for (auto& [name, weak] : regions_) {
    auto stable = weak.lock();
    auto renewed = group_->create_region(name, stable->bytes, stable->region->input_memory()).or_throw();
    before.push_back(std::exchange(stable->region, std::move(renewed)));
  }
  return before;
}

std::vector<std::shared_ptr<collective::Region>> Reductions::regions() const {
  std::vector<std::shared_ptr<collective::Region>> all;
  for (const auto& [name, weak] : regions_)
    if (auto stable = weak.lock()) all.push_back(stable->region);
  return all;
}

void Reductions::settle(const std::set<std::uint64_t>& lacking, StepFate fate) {
  if (exchange_.is_one_of({ReductionTable::held, ReductionTable::lacking})) {
    bool all_have_it = exchange_.is(ReductionTable::held) && !lacking.contains(exchange_number_);
    exchange_.on(all_have_it ? ReductionTable::all_have_it : ReductionTable::repeat);
    if (!all_have_it) rows_.clear();
  }
  for (const auto& reduction : all_) {
    auto& state = reduction->state_;
    if (state.is(ReductionTable::done)) continue;
    bool with_step = reduction->task().with_step;
    bool kept =
        with_step ? fate != StepFate::repeated : !lacking.contains(reduction->number_) || planted("lacking-ignored");
    if (state.is(ReductionTable::held) && kept) {
      state.on(ReductionTable::all_have_it);
      if (planted("result-dies")) reduction->region_.reset();
      continue;
    }
    if (with_step && fate == StepFate::complete) {
      // The others have left this step by break, and are in another loop: nobody has it, and it counts for nothing.
      state.on(ReductionTable::repeat);
      state.on(ReductionTable::completed);
      continue;
    }
    start_again(*reduction);
  }
}

void Reductions::go_on_alone(StepFate fate) {
  if (exchange_.is_one_of({ReductionTable::held, ReductionTable::lacking})) {
    exchange_.on(ReductionTable::repeat);
    rows_.clear();
  }
  for (const auto& reduction : all_) {
    auto& state = reduction->state_;
    bool kept = reduction->task().with_step && fate == StepFate::untouched && state.is(ReductionTable::held);
    if (kept)
      state.on(ReductionTable::all_have_it);
    else if (!reduction->done())
      start_again(*reduction);
  }
}

// ---- the dead that had given everything ----

void Reductions::salvage(collective::Group& ended, const View& before, const View& after, std::uint64_t self,
                         SummaryRow& row, const std::function<bool(std::uint64_t)>& is_dead) {
  for (int rank = 0; rank < before.size(); ++rank) {
    if (!speaks_for(self, before, after, rank) || !is_dead(before.members[static_cast<std::size_t>(rank)].id)) continue;
    if (left_complete(ended, rank)) take_over(ended, rank, row);
  }
}

bool Reductions::left_complete(collective::Group& ended, int rank) const {
  return ended.published_row(rank) && std::ranges::all_of(all_, [&](const StepReductionPtr& reduction) {
           if (!reduction->task().with_step) return true;
           return reduction->task().op != Op::mean && reduction->region_ && reduction->region_->ready() &&
                  ended.published_weight(reduction->operation_, rank);
         });
}

/// Their memory is written by nobody any more.
void Reductions::take_over(collective::Group& ended, int rank, SummaryRow& row) {
  auto theirs = decode_summary(*ended.published_row(rank));
  if (!theirs.ok() || theirs.value().step != job_.step) return;
  for (const auto& reduction : all_) {
    auto& task = reduction->task_;
    if (!task.with_step) continue;
    auto weight = *ended.published_weight(reduction->operation_, rank);
    if (!(weight > 0) || planted("dead-counted")) continue;
    auto* own = reduction->region_->input() + task.offset;
    const auto* input = reduction->region_->input_of(ended.place_of(rank)) + task.offset;
    std::vector<double> weights{task.weight, weight}, shares(2);
    std::vector<collective::Contribution> both{{own, 0}, {input, 0}};
    if (!(task.weight > 0)) weights.erase(weights.begin()), both.erase(both.begin()), shares.pop_back();
    auto recipe = collective::recipe_for(task.dtype, task.op, weights, shares);
    for (std::size_t i = 0; i < both.size(); ++i) both[i].share = shares[i];
    collective::reduce(recipe, own, both, task.count);
    task.weight = task.op == Op::weighted_mean ? task.weight + weight : 1;
  }
  speak_for(row, theirs.value());
  log::debug("step {}: speaking for a dead worker that had given everything", job_.step);
}

}  // namespace pliant::step
