#include "session/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/fault.h"
#include "base/log.h"

namespace pliant::session {
// ---- samples ----

void Core::set_batch(const BatchPlan& plan) {
  if (plan.local == 0 && plan.global == 0) throw Failure(Code::invalid, "a batch of no samples");
  plan_ = plan;
}

void Core::set_workload(double relative) {
  constexpr double kMost = 1000;
  if (!(relative >= 0 && relative <= kMost))
    throw Failure(Code::invalid, fmt::format("a workload of {} times the usual one", relative));
  share_ = static_cast<std::uint32_t>(std::lround(relative * kUsualShare));
}

void Core::attach_sampler(std::uint64_t samples, bool shuffle) {
  if (ledger_) throw Failure(Code::invalid, "the session has a sampler already");
  if (samples == 0) throw Failure(Code::invalid, "a data set of no samples");
  ledger_.emplace(samples);
  shuffle_ = shuffle;
}

std::uint64_t Core::global_batch() const {
  if (plan_.global) return plan_.global;
  auto all = plan_.local * static_cast<std::uint64_t>(size());
  return plan_.limit ? std::min(all, plan_.limit) : all;
}

std::uint64_t Core::steps_per_epoch() const {
  return ledger_ ? (ledger_->samples() + global_batch() - 1) / global_batch() : 0;
}

std::vector<Range> Core::ranges_of(int slot) const {
  return part_of(ledger_->next(global_batch()), turn_.deal.shares, slot);
}

Lease Core::lease_of(const Ledger& ledger, std::uint64_t step) const {
  Lease lease{ledger.epoch(), step, {}};
  Order order(ledger.samples(), seed(), ledger.epoch(), shuffle_);
  for (const auto& range : part_of(ledger.next(global_batch()), turn_.deal.shares, rank()))
    for (auto position = range.begin; position < range.end; ++position) lease.samples.push_back(order.at(position));
  return lease;
}

Lease Core::take_lease() {
  if (!ledger_ || !in_step_) throw Failure(Code::invalid, "samples are taken inside a step of session.steps()");
  if (leased_) throw Failure(Code::invalid, "this step's samples were taken already");
  auto lease = lease_of(*ledger_, step_);
  leased_ = true;
  lease_size_ = lease.size();
  return lease;
}

Lease Core::next_lease() const {
  auto after = *ledger_;
  if (in_step_) after.commit(global_batch());
  if (options_.epochs && after.epoch() >= options_.epochs) return Lease{after.epoch(), step_ + 1, {}};
  return lease_of(after, step_ + (in_step_ ? 1 : 0));
}

double Core::contribution() const {
  return ledger_ ? static_cast<double>(lease_size_) : static_cast<double>(std::max<std::uint64_t>(plan_.local, 1));
}

// ---- steps ----

void Core::start(const StepsOptions& options) {
  if (options.epochs == 0 && options.steps == 0)
    throw Failure(Code::invalid, "session.steps() needs a number of epochs or of steps");
  if (options.epochs && !ledger_)
    throw Failure(Code::invalid, "epochs need an ElasticSampler; without one, give steps");
  options_ = options;
  if (!started_) settle_down();
  if (roster_ && own_process_) notice_.emplace();
  replicas_.watch_anew();
  stripe_digest_ = replicas_.stripe_digest(step_);
}

/// The first loop of this worker begins: state is made equal, or, for a newcomer, fetched.
void Core::settle_down() {
  started_ = true;
  if (roster_) roster_->set_layout(replicas_.describe());
  adaptation_.use_named().or_throw();
  if (!journal_) journal_.emplace(journal_options().or_throw(), self_);
  if (!journal_->resume_dir().empty() && rank() == 0) resume(journal_->resume_dir());
  if (roster_ && !roster_->is_member()) {
    all_leave_ = !detached_until_taken_in();
    return;
  }
  if (!roster_ || !roster_->must_change()) {
    auto settled = settle_in(*group_);
    if (settled.ok()) return;
    await_successor(settled.error());
  }
  enter_next();
}

bool Core::finished() const {
  return adaptation_.stopped() || (options_.steps && step_ >= options_.steps) ||
         (options_.epochs && ledger_->epoch() >= options_.epochs);
}

std::optional<Step> Core::begin_step() {
  change_view();
  while (roster_ && !departed_ && !all_leave_ && !roster_->is_member()) all_leave_ = !detached_until_taken_in();
  if (finished() || departed_ || all_leave_) {
    end_loop();
    return std::nullopt;
  }
  fault::position(self_, step_);
  turn_ = {deal_, deal_.to.rank_of(self_), deal_.size()};
  in_step_ = true;
  closed_ = leased_ = delivered_ = false;
  lease_size_ = 0;
  uses_.clear();
  step_began_ = clock_.now();
  exposed_ = input_ = Nanos(0);
  if (!adaptation_.begun()) adaptation_.begin(report_of_step());
  for (auto& listener : at_step_)
    if (auto alive = listener.lock()) (*alive)();
  Step step;
  step.core_ = this;
  step.index_ = step_;
  step.epoch_ = epoch();
  step.progress_ = progress();
  step.ends_epoch_ = ledger_ && ledger_->left() <= global_batch();
  return step;
}

double Core::progress() const {
  auto by_steps = options_.steps ? static_cast<double>(step_) / static_cast<double>(options_.steps) : 0;
  if (!options_.epochs) return by_steps;
  auto used = 1 - static_cast<double>(ledger_->left()) / static_cast<double>(ledger_->samples());
  return std::max(by_steps, (static_cast<double>(epoch()) + used) / static_cast<double>(options_.epochs));
}

void Core::end_loop() {
  notice_.reset();
  journal_->stable(step_, std::nan(""));
  if (speaks_for_job() && journal_->keeps_checkpoints()) journal_->last_checkpoint(position(), replicas_.items());
  journal_->close(step_);
}

void Core::fill_row() {
  row_ = {};
  row_.step = step_;
  row_.samples = static_cast<std::uint64_t>(contribution());
  row_.slots = {static_cast<std::uint64_t>(rank())};
  row_.state_stripe = step_ % Replicas::kStripes;
  row_.state_digest = stripe_digest_;
  row_.skipped = skipped_;
  row_.share = share_;
  row_.times = times_;
  row_.speed = speed_;
  row_.logs = std::exchange(logs_, {});
  adaptation_.fill(row_, contribution());
}

/// What of the row may change between two attempts to close a step.
std::string Core::row_now() {
  row_.view_hash = view_.hash();
  row_.delivered = delivered_ ? 1 : 0;
  if (roster_) {
    if (notice_ && notice_->given()) roster_->leave_soon();
    row_plan_ = roster_->plan();
    row_.plan_hash = row_plan_ ? row_plan_->hash() : 0;
    row_.leaves = roster_->leaves() ? 1 : 0;
  }
  return encode(row_);
}

Summary Core::fold_rows(const Rows& rows) const {
  std::vector<SummaryRow> decoded;
  for (const auto& bytes : rows) {
    decoded.push_back(decode_summary(bytes).or_throw());
    if (std::ranges::any_of(decoded.back().slots, [&](auto slot) { return slot >= turn_.deal.shares.size(); }))
      throw Failure(Code::protocol, "a summary names a contributor that is none");
  }
  return fold(decoded).or_throw();
}

/// One attempt to close the step in the current view: all rows, all reductions of the step, and that everybody has
/// them.
Status Core::try_close() {
  auto rows = group_->exchange(row_now());
  if (!rows.ok()) return rows.error();
  held_rows_ = std::move(rows).value();
  for (const auto& ticket : tickets_) {
    if (!ticket->task().with_step || ticket->done_) continue;
    PLIANT_TRY(group_->wait(ticket->operation_));
    ticket->done_ = true;
  }
  return group_->confirm();
}

Core::Rows Core::close_surely() {
  closing_ = true;
  for (step_settled_ = false; !step_settled_;) {
    held_rows_.reset();
    closing_view_ = view_;
    auto tried = try_close();
    if (tried.ok()) break;
    go_on_after(tried.error());
  }
  closing_ = false;
  return *std::exchange(held_rows_, std::nullopt);
}

void Core::close_step() {
  if (!in_step_ || closed_) throw Failure(Code::invalid, "a step is closed once, inside a turn of session.steps()");
  if (ledger_ && !leased_) throw Failure(Code::invalid, "sampler.next() was not called in this step");
  replicas_.begin_averaging(*this, contribution());
  fill_row();
  auto began = clock_.now();
  auto stalled = stalled_;
  auto rows = close_surely();
  exposed_ += clock_.now() - began - (stalled_ - stalled);
  replicas_.finish_averaging();
  closed_ = true;
  summary_ = fold_rows(rows);
  const auto& summary = summary_;
  watch_gradients();
  std::erase_if(tickets_, [](const auto& ticket) { return ticket->task().with_step; });
  absorb(summary);
  journal_->stable(step_, loss());
  samples_seen_ += summary.samples;
  slots_ = summary.slots;
  if (summary.delivered) {
    slots_.resize(static_cast<std::size_t>(size()));
    std::iota(slots_.begin(), slots_.end(), 0);
  }
  adaptation_.count(summary);
}

void Core::absorb(const Summary& summary) {
  if (!summary.averages.empty()) averages_ = summary.averages;
  if (!roster_ || !in_step_) return;
  all_leave_ = std::ranges::all_of(summary.outlooks, [](const auto& outlook) { return outlook.leaves; });
  // A step that was settled in a later view changes nothing any more: what was planned then is decided by now.
  following_ = step_settled_ ? std::nullopt : membership::next_view(view_, summary.outlooks, row_plan_);
  deal_ = {closing_view_, summary.shares};
}

/// What was leased by those whose samples did not make it into the step comes back.
void Core::commit_ledger() {
  if (!ledger_) return;
  std::vector<Range> unused;
  for (int slot = 0; slot < size(); ++slot) {
    if (std::ranges::binary_search(slots_, static_cast<std::uint64_t>(slot))) continue;
    auto ranges = ranges_of(slot);
    unused.insert(unused.end(), ranges.begin(), ranges.end());
  }
  ledger_->commit(global_batch(), std::move(unused));
}

void Core::end_step() {
  if (!closed_) close_step();
  bool counts = !std::exchange(fallen_, false);
  auto record = journal_->records() && counts ? record_of_step() : StepRecord{};
  auto report = report_of_step();
  commit_ledger();
  ++step_;
  report.progress = progress();
  if (counts) adaptation_.judge(summary_, step_ - 1, speaks_for_job());
  act(adaptation_.take_action());
  in_step_ = false;
  std::erase_if(tickets_, [](const auto& ticket) { return ticket->done() || ticket.use_count() == 1; });
  stripe_digest_ = replicas_.stripe_digest(step_);  // now: the next forward pass changes buffers before it is sent
  auto whole = clock_.now() - step_began_;
  auto stalled = std::exchange(stalled_, Nanos(0));
  times_ = {seconds(std::max(whole - exposed_ - stalled - input_, Nanos(1))), seconds(exposed_), seconds(stalled),
            seconds(input_)};
  speed_ = contribution() / times_.compute;
  record.digest = stripe_digest_;
  record.stall_ms = times_.stall * 1e3;
  if (journal_->records() && counts) journal_->note(std::move(record));
  if (speaks_for_job() && journal_->due(step_)) journal_->checkpoint(position(), replicas_.items());
  adaptation_.conclude(report, finished());
  report_ = std::move(report);
  update_metrics();
  if (finished()) finish_job();
  report_progress();
}

/// Nobody closes another step: bring the last logs and digest home.
void Core::finish_job() {
  fill_row();
  auto summary = fold_rows(exchange_surely([&] { return row_now(); }));
  absorb(summary);
  adaptation_.judge(summary, step_, speaks_for_job());
  journal_->stable(step_, loss());
}

StepRecord Core::record_of_step() const {
  StepRecord record;
  record.t = unix_seconds();
  record.step = step_;
  record.view = closing_view_.epoch;
  record.view_hash = closing_view_.hash();
  record.worker = self_;
  record.rank = closing_view_.rank_of(self_);
  record.size = closing_view_.size();
  record.epoch = epoch();
  record.dataset = ledger_ ? ledger_->samples() : 0;
  record.global_batch = global_batch();
  record.lr = rate_;
  record.lineage = lineage_;
  for (auto slot : slots_)
    if (ledger_) record.samples.push_back({turn_.deal.to.members[slot].id, ranges_of(static_cast<int>(slot))});
  return record;
}

// ---- checkpoints ----

/// The first of those who are left: the turn's rank 0 may be lost, even in the last step.
bool Core::speaks_for_job() const { return view_.rank_of(self_) == 0 && (!roster_ || roster_->is_member()); }

Position Core::position() {
  Position now;
  now.job = roster_ ? roster_->job() : "";
  now.step = step_;
  now.seed = seed_;
  now.lineage = lineage_;
  now.samples = samples_seen_;
  now.digest = replicas_.digest();
  now.workers = size();
  now.local_batch = plan_.local;
  now.global_batch = plan_.global;
  now.ledger = ledger_;
  now.adaptation = adaptation_.save();
  return now;
}

/// Rank 0 begins where the newest checkpoint is; the others get that from it.
void Core::resume(const std::string& dir) {
  auto checkpoint = newest_checkpoint(dir).or_throw();
  std::vector<StateItem> like;
  for (const auto& [name, tensor] : checkpoint.tensors)
    like.push_back({name, tensor.dtype, nullptr, 0, Role::other, nullptr, tensor.shape});
  replicas_.bring_into_being(like);
  restore(checkpoint, replicas_.items()).or_throw();
  const auto& then = checkpoint.position;
  if (then.ledger.has_value() != ledger_.has_value() || (ledger_ && then.ledger->samples() != ledger_->samples()))
    throw Failure(Code::mismatch, fmt::format("{} was made with another data set", checkpoint.folder));
  if (replicas_.digest() != then.digest)
    throw Failure(Code::diverged, fmt::format("{}: the state restored is not the state saved", checkpoint.folder));
  step_ = then.step;
  seed_ = then.seed;
  lineage_ = begin_lineage(dir, then.lineage).or_throw();
  samples_seen_ = then.samples;
  ledger_ = then.ledger;
  blank_ = false;
  if (!then.adaptation.empty()) {
    auto loaded = adaptation_.load(then.adaptation);
    if (!loaded.ok()) log::warn("monitors and policies begin anew: {}", loaded.error().message);
    act(adaptation_.batch());
  }
  log::info("resumed from {} at step {}", checkpoint.folder, step_);
}

}  // namespace pliant::session
