#include "step/turn.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/planted.h"

namespace pliant::step {

Summary fold_rows(const Rows& rows, std::size_t slots) {
  std::vector<SummaryRow> decoded;
  for (const auto& bytes : rows) {
    decoded.push_back(decode_summary(bytes).or_throw());
    if (std::ranges::any_of(decoded.back().slots, [&](auto slot) { return slot >= slots; }))
      throw Failure(Code::protocol, "a summary names a contributor that is none");
  }
  return fold(decoded).or_throw();
}

StepFate Turn::fate(bool all_have_it) const {
  if (!in_step() || closed()) return StepFate::untouched;
  return all_have_it ? StepFate::complete : StepFate::repeated;
}

// ---- whose samples ----

void Turn::place(LeaseAssignment assignment, int rank) {
  PLIANT_ASSERT(!in_step());
  assignment_ = std::move(assignment);
  rank_ = rank;
}

std::vector<Range> Turn::ranges_of(const JobState& job, int slot) const {
  return part_of(job.ledger->next(job.global_batch(size())), assignment_.shares, slot);
}

Lease Turn::lease(const JobState& job, bool shuffle) const {
  const auto& ledger = *job.ledger;
  Lease lease{ledger.epoch(), job.step, {}};
  Order order(ledger.samples(), job.seed, ledger.epoch(), shuffle);
  for (const auto& range : ranges_of(job, rank_))
    for (auto position = range.begin; position < range.end; ++position) lease.samples.push_back(order.at(position));
  return lease;
}

Lease Turn::take_lease(const JobState& job, bool shuffle) {
  if (!job.ledger || !in_step()) throw Failure(Code::invalid, "samples are taken inside a step of session.steps()");
  if (leased()) throw Failure(Code::invalid, "this step's samples were taken already");
  auto taken = lease(job, shuffle);
  leased_ = Leased::taken;
  lease_ = ranges_of(job, rank_);
  lease_size_ = taken.size();
  return taken;
}

double Turn::contribution(const JobState& job) const {
  return static_cast<double>(job.ledger ? lease_size_ : std::max<std::uint64_t>(job.batch.local, 1));
}

// ---- what happens in it ----

void Turn::begin(const JobState& job, std::uint64_t self, Nanos now) {
  place(job.assignment, job.assignment.to.rank_of(self));
  state_.on(StepTable::begin);
  leased_ = Leased::no;
  lease_.clear();
  lease_size_ = 0;
  delivered_ = 0;
  timing_.began = now;
  timing_.exposed = timing_.input = Nanos(0);
}

SummaryRow& Turn::fill_row(const JobState& job) {
  row_ = {};
  row_.step = job.step;
  row_.samples = static_cast<std::uint64_t>(contribution(job));
  row_.slots = {static_cast<std::uint64_t>(rank_)};
  row_.skipped = job.skipped;
  row_.times = times_;
  row_.speed = speed_;
  row_.logs = std::exchange(logs_, {});
  return row_;
}

void Turn::name_plan(std::optional<membership::View> plan) {
  named_plan_ = std::move(plan);
  row_.plan_hash = named_plan_ ? named_plan_->hash() : 0;
}

std::string Turn::encoded_row() {
  row_.delivered = delivered_;
  return encode(row_);
}

// ---- closing it ----

void Turn::rows_here(Rows rows) {
  rows_ = std::move(rows);
  state_.on(StepTable::rows_here);
}

void Turn::interrupted(std::optional<Rows> settled, bool reductions_held) {
  if (!closing()) return;
  if (rows_.empty() && settled) rows_ = std::move(*settled);
  state_.on(!rows_.empty() && reductions_held ? StepTable::interrupted_whole : StepTable::interrupted_short);
}

void Turn::settle(bool all_have_it) {
  if (!closing()) return;
  state_.on(all_have_it ? StepTable::all_have_it : StepTable::repeat);
  if (!all_have_it) rows_.clear();
}

const Summary& Turn::conclude() {
  summary_ = fold_rows(std::exchange(rows_, {}), assignment_.shares.size());
  slots_ = summary_.slots;
  if (summary_.delivered) {
    slots_.resize(assignment_.shares.size());
    std::iota(slots_.begin(), slots_.end(), 0);
  }
  return summary_;
}

// ---- ending it ----

void Turn::commit(JobState& job) {
  if (job.ledger) {
    std::vector<Range> unused;
    for (int slot = 0; slot < size(); ++slot) {
      bool gone = planted("salvaged-return") &&
                  closing_view_.rank_of(assignment_.to.members[static_cast<std::size_t>(slot)].id) < 0;
      if (std::ranges::binary_search(slots_, static_cast<std::uint64_t>(slot)) && !gone) continue;
      auto ranges = ranges_of(job, slot);
      unused.insert(unused.end(), ranges.begin(), ranges.end());
    }
    if (planted("unused-lost")) unused.clear();
    job.ledger->commit(job.global_batch(size()), std::move(unused));
  }
  if (next_batch_) job.batch = *std::exchange(next_batch_, std::nullopt);
  ++job.step;
}

record::StepRecord Turn::record(const JobState& job, std::uint64_t self) const {
  record::StepRecord record;
  record.step = job.step;
  record.view = closing_view_.epoch;
  record.view_hash = closing_view_.hash();
  record.worker = self;
  record.rank = closing_view_.rank_of(self);
  record.size = closing_view_.size();
  record.epoch = job.epoch();
  record.dataset = job.ledger ? job.ledger->samples() : 0;
  record.global_batch = job.global_batch(size());
  record.lineage = job.lineage;
  record.digest.before = row_.state_digest;
  record.ledger.before = job.digest();
  record.delivered = summary_.delivered;
  record.took = planted("lease-recomputed") && job.ledger ? ranges_of(job, closing_view_.rank_of(self)) : lease_;
  record.lease = {assignment_.to.epoch, assignment_.to.members_hash(), {}};
  for (const auto& member : assignment_.to.members) record.lease.workers.push_back(member.id);
  for (auto slot : slots_)
    if (job.ledger) record.samples.push_back({record.lease.workers[slot], ranges_of(job, static_cast<int>(slot))});
  for (std::size_t i = 0; job.ledger && i < summary_.slots.size(); ++i) {
    auto part =
        std::ranges::find(record.samples, record.lease.workers[summary_.slots[i]], &record::Contribution::worker);
    auto speaker = closing_view_.members[static_cast<std::size_t>(summary_.speakers[i])].id;
    if (part != record.samples.end() && part->worker != speaker && !planted("salvage-unrecorded")) part->by = speaker;
  }
  return record;
}

StepTimes Turn::end(const JobState& job, Nanos now) {
  auto contributed = contribution(job);
  state_.on(StepTable::end);
  auto whole = now - timing_.began;
  auto stalled = std::exchange(timing_.stalled, Nanos(0));
  times_ = {seconds(std::max(whole - timing_.exposed - stalled - timing_.input, Nanos(1))), seconds(timing_.exposed),
            seconds(stalled), seconds(timing_.input)};
  speed_ = contributed / times_.compute;
  return times_;
}

}  // namespace pliant::step
