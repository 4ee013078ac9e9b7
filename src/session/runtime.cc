#include "session/runtime.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "base/fault.h"
#include "base/log.h"
#include "base/planted.h"

namespace pliant::session {
namespace {

record::Outcome record_outcome(Outcome outcome) {
  switch (outcome) {
    case Outcome::finished:
      return record::Outcome::finished;
    case Outcome::stopped:
      return record::Outcome::stopped;
    case Outcome::left:
      return record::Outcome::left;
    case Outcome::running:
      return record::Outcome::quit;
    case Outcome::failed:
      break;
  }
  return record::Outcome::failed;
}

}  // namespace

Runtime::Runtime(std::uint64_t self, std::uint64_t seed, std::unique_ptr<Roster> roster)
    : platform_(Platform::current()),
      clock_(platform_.clock()),
      process_(getpid()),
      exceptions_(std::uncaught_exceptions()),
      training_(platform_, self, seed),
      views_(training_, std::move(roster), [this] { call(at_view_); }),
      reporter_(training_, views_),
      gradients_(training_, [this](const auto& reduction) { wait_here(reduction); }) {}

Runtime::~Runtime() {
  const auto& job = training_.job;
  if (training_.journal) training_.journal->end(record::Outcome::failed, job.lineage, job.step);  // unless it had ended
}

bool Runtime::inherited() const { return getpid() != process_; }

bool Runtime::unwinding() const { return std::uncaught_exceptions() > exceptions_; }

void Runtime::call(std::vector<std::weak_ptr<std::function<void()>>>& listeners) {
  for (auto& listener : listeners)
    if (auto alive = listener.lock()) (*alive)();
}

void Runtime::leave(bool failed) {
  if (outcome_ == Outcome::failed) return;  // it has left
  const auto& job = training_.job;
  auto how = failed || views_.awaits_loop() ? Outcome::failed : outcome_;
  if (!failed && views_.awaits_loop())
    log::error("the job is in loop {} of the program, but this worker's program has ended after loop {}",
               views_.awaited_loop(), job.loop);
  if (training_.journal) training_.journal->end(record_outcome(how), job.lineage, job.step);  // unless it had
  if (!views_.roster()) return;
  // A program that leaves its loop by itself has decided that its work is done.
  views_.roster()->say_goodbye(how == Outcome::running ? Outcome::finished : how, job.step);
}

void Runtime::fail_loop() {
  auto* roster = views_.roster();
  if (!roster || inherited() || !training_.loop.is(step::LoopTable::running)) return;
  notice_.reset();
  leave(true);
  roster->hang_up();
  training_.loop.on(step::LoopTable::end);
  outcome_ = Outcome::failed;
  log::warn("an exception has left the loop in step {}: this worker leaves its job", step());
}

void Runtime::check_usable() const {
  if (outcome_ != Outcome::failed) return;
  throw Failure(Code::refused, fmt::format("an exception has left the loop of this session in step {}: since then this "
                                           "worker is no part of the job",
                                           step()));
}

void Runtime::resize(int workers) {
  check_usable();
  if (workers < 1) throw Failure(Code::invalid, "a job needs at least one worker");
  if (views_.roster() && rank() == 0) views_.roster()->ask_for(static_cast<std::uint32_t>(workers));
}

// ---- samples ----

void Runtime::set_batch(const BatchPlan& plan) {
  if (plan.local == 0 && plan.global == 0) throw Failure(Code::invalid, "a batch of no samples");
  if (training_.turn.in_step() && !planted("batch-at-once"))
    training_.turn.set_next_batch(plan);
  else
    training_.job.batch = plan;
}

void Runtime::set_workload(double relative) {
  constexpr double kMost = 1000;
  if (!(relative >= 0 && relative <= kMost))
    throw Failure(Code::invalid, fmt::format("a workload of {} times the usual one", relative));
  share_ = static_cast<std::uint32_t>(std::lround(relative * step::kUsualShare));
}

void Runtime::attach_sampler(std::uint64_t samples, bool shuffle) {
  if (training_.job.ledger) throw Failure(Code::invalid, "the session has a sampler already");
  if (samples == 0) throw Failure(Code::invalid, "a data set of no samples");
  training_.job.ledger.emplace(samples);
  shuffle_ = shuffle;
}

std::uint64_t Runtime::steps_per_epoch() const {
  const auto& ledger = training_.job.ledger;
  return ledger ? (ledger->samples() + global_batch() - 1) / global_batch() : 0;
}

Lease Runtime::next_lease() const {
  auto after = training_.job;
  if (training_.turn.in_step()) {
    after.ledger->commit(global_batch());
    ++after.step;
  }
  if (after.until.epochs && after.epoch() >= after.until.epochs) return Lease{after.epoch(), step() + 1, {}};
  return training_.turn.lease(after, shuffle_);
}

// ---- collectives for everyone ----

step::StableRegionPtr Runtime::region(const std::string& name, std::size_t bytes) {
  check_usable();
  auto region = training_.reductions.region(name, bytes);
  views_.regions_changed();
  return region;
}

step::StepReductionPtr Runtime::submit(step::Task task) {
  check_usable();
  return training_.reductions.submit(std::move(task));
}

std::uint64_t Runtime::digest() {
  check_usable();
  return views_.compare();
}

void Runtime::wait(const step::StepReductionPtr& reduction) {
  check_usable();
  auto& turn = training_.turn;
  auto began = clock_.now();
  auto stalled = turn.timing().stalled;
  while (!reduction->done()) {
    auto waited = training_.reductions.wait(*reduction);
    if (!waited.ok()) views_.go_on_after(waited.error());
  }
  const auto& task = reduction->task();
  if (turn.computing()) {
    turn.timing().exposed += clock_.now() - began - (turn.timing().stalled - stalled);
    if (task.op == Op::weighted_mean && !task.with_step) turn.deliver();
  }
  if (!task.with_step) training_.reductions.forget(reduction);
}

void Runtime::wait_here(const step::StepReductionPtr& reduction) {
  try {
    wait(reduction);
  } catch (...) {
    training_.reductions.forget(reduction);
    throw;
  }
}

/// The result before the last is not needed any more. If its memory is of a view that has ended, the reclaimer gives it
/// back, beside the training.
const void* Runtime::result_of(step::StepReduction& reduction) {
  if (reduction.give_out()) {
    auto& [before, last] = results_[reduction.task().name];
    auto gone = std::exchange(before, std::exchange(last, reduction.region()));
    if (gone && gone != before && gone != last) views_.reclaim(std::move(gone));
  }
  return reduction.result();
}

double Runtime::average(const std::string& name, double value, double weight) {
  double sums[2] = {weight > 0 ? value * weight : 0, weight};
  wait_here(submit({.name = "~average/" + name,
                    .dtype = Dtype::f64,
                    .op = Op::sum,
                    .count = 2,
                    .in = sums,
                    .out = sums,
                    .caller_waits = true}));
  return sums[1] > 0 ? sums[0] / sums[1] : std::nan("");
}

// ---- the loop ----

void Runtime::start(const StepsOptions& options) {
  check_usable();
  if (options.epochs == 0 && options.steps == 0)
    throw Failure(Code::invalid, "session.steps() needs a number of epochs or of steps");
  if (options.epochs && !training_.job.ledger)
    throw Failure(Code::invalid, "epochs need an ElasticSampler; without one, give steps");
  if (training_.turn.closing())
    throw Failure(Code::invalid, "a step of this session has failed: no other loop can begin");
  if (training_.turn.in_step()) abandon_step();
  training_.job.until = options;
  ++training_.job.loop;
  auto* roster = views_.roster();
  if (std::exchange(outcome_, Outcome::running) != Outcome::running && roster)
    roster->report_outcome(outcome_, step());  // another loop: what was said of the one before is not the end
  bool first = !training_.started();
  training_.loop.on(step::LoopTable::start);
  if (first)
    begin_first_loop();
  else if (views_.awaits_loop())
    views_.reach_loop();
  else
    training_.journal->begin_loop();
  if (roster && own_process_) notice_ = platform_.notice();
  training_.note_stripe();
}

/// The program has left its loop by break. What all have submitted to the step is reduced first: its memory is used
/// again, and nobody who comes with a later view has submitted it.
void Runtime::abandon_step() {
  if (planted("break-leaves-rest")) return training_.turn.abandon();
  for (auto reduced = training_.reductions.wait_for_step(); !reduced.ok();
       reduced = training_.reductions.wait_for_step())
    views_.go_on_after(reduced.error());
  training_.reductions.forget_step();
  training_.turn.abandon();
}

void Runtime::begin_first_loop() {
  if (views_.roster()) views_.roster()->set_layout(training_.replicas.describe());
  training_.adaptation.use_named().or_throw();
  auto options = journal_options(platform_).or_throw();
  training_.journal.emplace(options, worker(), platform_, platform_.records(options, worker()).or_throw());
  // Rank 0 begins where the newest checkpoint is; the others get that from it.
  if (!options.resume_dir.empty() && rank() == 0)
    training_.resumption = {platform_.checkpoints().newest(options.resume_dir).or_throw(), options.resume_dir};
  views_.settle_down();
}

std::optional<Step> Runtime::begin_step() {
  check_usable();
  if (!views_.awaits_loop()) views_.between_steps();
  if (views_.awaits_loop()) {
    pass_by_loop();
    return std::nullopt;
  }
  auto& job = training_.job;
  auto& turn = training_.turn;
  auto& adaptation = training_.adaptation;
  if (training_.finished() || views_.left() || views_.over()) {
    end_loop();
    return std::nullopt;
  }
  fault::position(worker(), job.step);
  turn.begin(job, worker(), clock_.now());
  training_.reductions.count_names_anew();
  if (!adaptation.begun()) adaptation.begin(reporter_.report_of_step());
  call(at_step_);
  Step step;
  step.runtime_ = this;
  step.index_ = job.step;
  step.epoch_ = job.epoch();
  step.progress_ = job.progress();
  step.ends_epoch_ = job.ledger && job.ledger->left() <= global_batch();
  return step;
}

/// The job has done with this loop of the program: so has this worker, which makes none of its steps.
void Runtime::pass_by_loop() {
  notice_.reset();
  outcome_ = Outcome::finished;
  training_.loop.on(step::LoopTable::end);
}

void Runtime::end_loop() {
  notice_.reset();
  const auto& job = training_.job;
  auto& journal = *training_.journal;
  auto* roster = views_.roster();
  bool inside = !roster || roster->is_member();
  // Whoever the others have gone on without cannot say that its last step is the job's.
  bool finished = training_.finished() && (inside || !training_.replica.is(step::ReplicaTable::blank));
  outcome_ = finished ? Outcome::finished : views_.left() || !inside ? Outcome::left : Outcome::stopped;
  if (training_.loop.is(step::LoopTable::running)) training_.loop.on(step::LoopTable::end);
  journal.stable(job.step, std::nan(""));
  if (views_.speaks_for_job() && journal.keeps_checkpoints())
    journal.last_checkpoint(position_of(training_, roster ? roster->job() : ""), training_.replicas.items());
  journal.close(job.step);
  journal.end(record_outcome(outcome_), job.lineage, job.step);
  if (roster) roster->report_outcome(outcome_, job.step);  // after what the job leaves is written
}

// ---- monitors ----

rules::Where Runtime::where() const {
  const auto& job = training_.job;
  return {job.step, static_cast<double>(job.epoch()) + job.epoch_used(), job.progress(),
          static_cast<double>(global_batch()), size()};
}

}  // namespace pliant::session
