#include "session/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/system.h"
#include "net/socket.h"

namespace pliant::session {
namespace {

#ifndef PLIANT_VERSION
#define PLIANT_VERSION "0"
#endif

/// The environment that `pliant run` gives its workers.
struct Invitation {
  std::string job;
  std::string coordinator;
  std::uint64_t worker = 0;
};

std::optional<Invitation> invitation() {
  auto coordinator = env("PLIANT_COORDINATOR");
  auto job = env("PLIANT_JOB");
  auto worker = env("PLIANT_WORKER");
  if (!coordinator || !job || !worker) return std::nullopt;
  return Invitation{*job, *coordinator, std::strtoull(worker->c_str(), nullptr, 10)};
}

}  // namespace

Core::Core(membership::View view, int rank, std::unique_ptr<CoordinatorLink> link)
    : view_(std::move(view)), rank_(rank), link_(std::move(link)) {}

Result<std::unique_ptr<Core>> Core::form(const std::string& job, membership::View view, int rank, Fd listener,
                                         std::unique_ptr<CoordinatorLink> link) {
  collective::Team team{job, view.hash(), view.members, rank};
  collective::GroupOptions options;
  options.on_lost = [line = link.get()](int lost, const Error& why) {
    if (line) line->complain(lost, why.message);
  };
  auto group = collective::Group::form(std::move(team), std::move(listener), std::move(options));
  if (!group.ok()) return group.error();
  std::unique_ptr<Core> core(new Core(std::move(view), rank, std::move(link)));
  core->group_ = std::move(group).value();
  return core;
}

Result<std::unique_ptr<Core>> Core::join(const JoinOptions& options) {
  auto invited = invitation();
  if (!invited) return form("", {1, 1, options.seed.value_or(42), {{0, getpid(), ""}}}, 0, Fd(), nullptr);

  auto address = fmt::format("@pliant/{:016x}", random_u64());
  auto listener = net::listen_at(address);
  if (!listener.ok()) return listener.error();
  wire::Join request{invited->job,  invited->worker, getpid(), address, static_cast<std::uint8_t>(cpu_level()),
                     PLIANT_VERSION};
  auto link = CoordinatorLink::join(invited->coordinator, request);
  if (!link.ok()) return link.error();
  auto view = link.value()->view();
  int rank = view.rank_of(invited->worker);
  if (rank < 0) return Error{Code::protocol, "the view does not contain this worker"};
  log::set_prefix(std::to_string(rank));
  return form(invited->job, std::move(view), rank, std::move(listener).value(), std::move(link).value());
}

// ---- samples ----

void Core::set_batch(const BatchPlan& plan) {
  if (plan.local == 0 && plan.global == 0) throw Failure(Code::invalid, "a batch of no samples");
  plan_ = plan;
}

void Core::attach_sampler(std::uint64_t samples, bool shuffle) {
  if (ledger_) throw Failure(Code::invalid, "the session has a sampler already");
  if (samples == 0) throw Failure(Code::invalid, "a data set of no samples");
  ledger_.emplace(samples);
  shuffle_ = shuffle;
}

std::uint64_t Core::global_batch() const {
  return plan_.global ? plan_.global : plan_.local * static_cast<std::uint64_t>(size());
}

std::uint64_t Core::steps_per_epoch() const {
  return ledger_ ? (ledger_->samples() + global_batch() - 1) / global_batch() : 0;
}

Lease Core::lease_of(const Ledger& ledger, std::uint64_t step) const {
  Lease lease{ledger.epoch(), step, {}};
  Order order(ledger.samples(), seed(), ledger.epoch(), shuffle_);
  for (const auto& range : part_of(ledger.next(global_batch()), size(), rank_))
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
  if (!started_) replicas_.synchronize(*group_).or_throw();
  started_ = true;
  stripe_digest_ = replicas_.stripe_digest(step_);
}

bool Core::finished() const {
  return (options_.steps && step_ >= options_.steps) || (options_.epochs && ledger_->epoch() >= options_.epochs);
}

std::optional<Step> Core::begin_step() {
  if (finished()) return std::nullopt;
  in_step_ = true;
  closed_ = leased_ = false;
  lease_size_ = 0;
  step_began_ = clock_.now();
  for (auto& listener : listeners_)
    if (auto alive = listener.lock()) (*alive)();
  Step step;
  step.core_ = this;
  step.index_ = step_;
  step.epoch_ = epoch();
  step.ends_epoch_ = ledger_ && ledger_->left() <= global_batch();
  return step;
}

SummaryRow Core::own_row() {
  SummaryRow row;
  row.step = step_;
  row.view_hash = view_.hash();
  row.samples = static_cast<std::uint64_t>(contribution());
  row.state_stripe = step_ % Replicas::kStripes;
  row.state_digest = stripe_digest_;
  row.skipped = skipped_;
  row.step_seconds = step_seconds_;
  row.logs = std::move(logs_);
  logs_.clear();
  return row;
}

Summary Core::exchange_summary() {
  std::vector<SummaryRow> rows;
  for (const auto& bytes : group_->exchange(encode(own_row())).or_throw())
    rows.push_back(decode_summary(bytes).or_throw());
  return fold(rows).or_throw();
}

void Core::absorb(const Summary& summary) {
  if (!summary.averages.empty()) averages_ = summary.averages;
}

void Core::close_step() {
  if (!in_step_ || closed_) throw Failure(Code::invalid, "a step is closed once, inside a turn of session.steps()");
  if (ledger_ && !leased_) throw Failure(Code::invalid, "sampler.next() was not called in this step");
  replicas_.begin_averaging(*group_, contribution()).or_throw();
  auto summary = exchange_summary();
  replicas_.finish_averaging(*group_).or_throw();
  samples_seen_ += summary.samples;
  absorb(summary);
  auto rate = step_seconds_ > 0 ? static_cast<double>(summary.samples) / step_seconds_ : 0;
  samples_per_second_ = samples_per_second_ > 0 ? 0.9 * samples_per_second_ + 0.1 * rate : rate;
  closed_ = true;
}

void Core::end_step() {
  if (!closed_) close_step();
  if (ledger_) ledger_->commit(global_batch());
  ++step_;
  in_step_ = false;
  stripe_digest_ = replicas_.stripe_digest(step_);  // now: the next forward pass changes buffers before it is sent
  step_seconds_ = seconds(clock_.now() - step_began_);
  if (finished()) absorb(exchange_summary());  // nobody closes another step: bring the last logs and digest home
  report_progress();
}

void Core::report_progress() {
  if (!link_ || rank_ != 0) return;
  wire::Progress progress;
  progress.step = step_;
  progress.epoch = epoch();
  progress.epochs = options_.epochs;
  progress.steps = options_.steps ? options_.steps : options_.epochs * steps_per_epoch();
  progress.samples = samples_seen_;
  progress.samples_per_second = samples_per_second_;
  progress.loss = std::nan("");
  for (const auto& [name, value] : averages_) {
    if (name == "loss")
      progress.loss = value;
    else if (progress.text.size() < 200)
      progress.text += fmt::format("{}{} {:.4g}", progress.text.empty() ? "" : "  ", name, value);
  }
  link_->report(std::move(progress));
}

void Core::log(std::string_view name, double value) {
  if (name.empty() || name.size() > wire::kMaxName) throw Failure(Code::invalid, "a log needs a short name");
  if (logs_.size() >= kMaxLogs) throw Failure(Code::invalid, fmt::format("more than {} logs in a step", kMaxLogs));
  logs_.push_back({std::string(name), value, contribution()});
}

// ---- collectives ----

std::shared_ptr<collective::Operation> Core::submit(const collective::Request& request) {
  return group_->submit(request).or_throw();
}

void Core::wait(const std::shared_ptr<collective::Operation>& operation) { group_->wait(operation).or_throw(); }

double Core::average(const std::string& name, double value, double weight) {
  double sums[2] = {weight > 0 ? value * weight : 0, weight};
  wait(submit({.name = "~average/" + name,
               .dtype = Dtype::f64,
               .op = Op::sum,
               .count = 2,
               .in = sums,
               .out = sums,
               .caller_waits = true}));
  return sums[1] > 0 ? sums[0] / sums[1] : std::nan("");
}

std::uint64_t Core::digest() {
  auto own = replicas_.digest();
  std::vector<std::uint64_t> digests;
  for (const auto& row : group_->exchange(fmt::format("{:016x}", own)).or_throw())
    digests.push_back(std::strtoull(row.c_str(), nullptr, 16));
  if (auto text = deviants(digests); !text.empty())
    throw Failure(Code::diverged, "replicas are not identical: " + text);
  return own;
}

}  // namespace pliant::session
