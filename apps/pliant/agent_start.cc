// The agent's first half: how it starts, and what it does for the coordinator.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "apps/pliant/agent.h"
#include "apps/pliant/status_file.h"
#include "base/log.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

WorkerSetOptions worker_options(const RunOptions& options, const JobRecord& record, const std::string& dir,
                                std::vector<std::string> environment) {
  const auto& plan = record.plan;
  auto workers = static_cast<int>(plan.wanted);
  auto here = record.is_part() ? std::min(workers, static_cast<int>(record.host.slots)) : workers;
  WorkerEnv env{
      record.job_name(), plan.coordinator,    workers,    plan.threads, plan.seed, plan.env, dir, record.host.name,
      secret_file(dir),  plan.interface_name, plan.ports, plan.store};
  if (!plan.store.empty()) env.coordinator = "file:" + place_file(dir);
  if (env.threads <= 0) env.threads = std::max(1, usable_cores() / here);
  return {record.program, record.argv, std::move(environment), env, record.output_dir, options.output};
}

}  // namespace

std::string restart_line(const wire::ViewNotice& view) {
  return fmt::format(
      "pliant: no worker was left that held the state of the training: going on from the checkpoint of step {} with {} "
      "worker{}\n",
      view.resume_step, view.members.size(), view.members.size() == 1 ? "" : "s");
}

net::Credentials agent_credentials(const std::string& job, const net::Secret& secret) {
  return {secret, {net::Purpose::coordinator, job, UINT64_MAX, UINT64_MAX, 0, 0}};
}

Agent::Agent(const RunOptions& options, JobRecord record, JobDir dir, std::vector<std::string> environment)
    : options_(options),
      job_(std::move(record), std::move(dir),
           [this](const Error& error) { say(fmt::format("pliant: {}\n", error.message)); }),
      started_(clock_.now()),
      console_(STDOUT_FILENO, STDERR_FILENO),
      reporter_(console_, options_.status, job_.path()),
      workers_(loop_, console_, worker_options(options_, job_.get(), job_.path(), std::move(environment)),
               [this] { reap(); }),
      supply_(loop_, job_.get(), events_, slot_events()),
      news_(job_.get().plan.wanted, job_.get().plan.supply.price) {}

Agent::~Agent() = default;

Status Agent::start() {
  auto signals = SignalWatch::start(
      loop_, [this](int number) { on_signal(number); }, options_.join != "-");
  if (!signals.ok()) return signals.error();
  signals_ = std::move(signals).value();
  auto here = record().is_part() ? record().host.slots : record().plan.wanted;
  PLIANT_TRY(workers_.prepare(here, record().is_part() ? here : record().plan.most));
  for (const auto& worker : record().workers) {
    auto runs = workers_.take_up(worker);
    if (!runs.ok()) return runs.error();
    // On one host the coordinator has seen to it; on another one, only this can prove it.
    if (!runs.value() && record().is_part()) missed_.push_back(worker);
  }
  events_.open(record().plan, record().is_part() ? "agent-" + record().host.name : "agent");
  events_.note(job_.attached() ? "attached" : "begun", record().name);
  if (auto seen = read_status(job_.path())) news_.account().carry_over(seen->bill);
  PLIANT_TRY(supply_.open());
  keep_coordinator();
  supply_.watch_for_notice();
  return {};
}

void Agent::keep_coordinator() {
  KeeperEvents events;
  events.on_connected = [this] {
    events_.note("coordinator", "connected");
    introduce();
  };
  events.on_message = [this](const wire::Message& message) { on_message(message); };
  events.on_hopeless = [this](const Error& error) { on_hopeless(error); };
  events.offer = [this] { return job_.offer_place(); };
  events.on_place = [this](const std::string& address) {
    events_.note("place", address);
    job_.note_place(address);
  };
  events.on_trouble = [this](const std::string& line) { say(fmt::format("pliant: {}{}\n", record().where(), line)); };
  const auto& plan = record().plan;
  KeeperOptions options{job_.path(),  plan.coordinator,    std::nullopt,    plan.store,
                        record().job, !record().is_part(), workers_.files()};
  if (record().is_part())
    options.credentials = agent_credentials(record().job, net::Secret::from_file(secret_file(job_.path())).or_throw());
  keeper_.emplace(loop_, std::move(options), std::move(events));
}

/// This agent is of no use to a job that runs without it.
int Agent::let_go(const Error& error) {
  say(fmt::format("pliant run: {}\n", error.message));
  job_.release();
  return 1;
}

/// The job could not start: ends what runs already and says why.
int Agent::abandon(const Error& error) {
  if (keeper_) keeper_->end();
  kill_workers();
  for (auto& worker : workers_.all())
    while (worker.process.running() && !worker.process.reap()) usleep(1000);
  say(fmt::format("pliant run: {}\n", error.message));
  if (error.code == Code::not_found) return 127;
  return error.code == Code::invalid ? 126 : 1;
}

// ---- for the coordinator ----

/// The second hello says that this is all.
void Agent::introduce() {
  wire::AgentHello hello{record().job_name(), record().host.name, supply_.slots(), record().plan.supply.kind};
  keeper_->send(hello);
  if (verdict_.interrupted() && !record().is_part())
    keeper_->send(wire::Stop{});  // the one before may not have heard it
  for (const auto& worker : std::exchange(missed_, {})) {
    keeper_->send(wire::Started{worker.id, worker.process.pid});
    keeper_->send(ended_of(worker.id, false, "it ended while there was no agent"));
  }
  for (auto& worker : workers_.all()) {
    if (worker.process.running())
      keeper_->send(wire::Started{worker.id, worker.process.id().pid});
    else if (!worker.reported)
      tell_end(worker);
  }
  keeper_->send(hello);
}

void Agent::tell_end(Worker& worker) {
  const auto& ending = *worker.process.ending();
  auto ended = ended_of(worker.id, ending.good(), ending.words());
  ended.taken = static_cast<std::uint8_t>(worker.leave_by.has_value());
  worker.reported = keeper_->send(ended);
  deaths_.told(worker.id, worker.reported, clock_.now());
}

void Agent::on_message(const wire::Message& message) {
  if (const auto* wish = std::get_if<wire::Start>(&message)) {
    start_worker(wish->id);
  } else if (const auto* state = std::get_if<wire::JobState>(&message)) {
    on_state(*state);
  } else if (const auto* progress = std::get_if<wire::Progress>(&message)) {
    news_.on_progress(clock_.now(), *progress);
  } else if (const auto* parted = std::get_if<wire::Parted>(&message)) {
    deaths_.answered(parted->id);
    if (auto death = deaths_.explain(parted->id, parted->goodbye != 0)) on_death(*death);
    if (!parted->goodbye) name_early_exit(parted->id);
  } else if (const auto* over = std::get_if<wire::Over>(&message)) {
    on_over(*over);
  } else if (const auto* stop = std::get_if<wire::Stop>(&message)) {
    on_stop(*stop);
  } else if (const auto* refusal = std::get_if<wire::Refusal>(&message)) {
    if (!std::exchange(refused_, true))
      say(fmt::format("pliant: the coordinator refuses this agent: {}\n", printable(refusal->reason)));
  }
}

void Agent::start_worker(std::uint64_t id) {
  if (phase_ != Phase::running || workers_.find(id) || cannot_start_) return;
  auto started = workers_.start(id);
  if (started.ok()) {
    const auto& worker = *started.value();
    job_.add_worker({worker.process.id(), worker.out, worker.err, id}, loop_);
    keeper_->send(wire::Started{id, worker.process.id().pid});
    events_.note("started", id, fmt::format("process {}", worker.process.id().pid));
    return;
  }
  if (job_.attached() || record().is_part() || news_.has_begun()) {  // those who run are not concerned
    say(fmt::format("pliant: {}{}\n", record().where(), started.error().message));
    keeper_->send(wire::Ended{id, 0, started.error().message});
    return;
  }
  cannot_start_ = started.error();
  loop_.stop();
}

void Agent::on_state(const wire::JobState& state) {
  auto news = news_.on_state(clock_.now(), state);
  if (news == StateNews::again && !record().is_part()) say(restart_line(state.view));
  if (news != StateNews::nothing && news_.is_over()) {
    news_.take_back_over();
    resume();
  }
  // Whoever failed did so in a job that had begun: the others know how to go on.
  if (news == StateNews::first && resume())
    for (const auto& death : deaths_.all()) announce(death);
}

/// It was about to end: it goes on, unless its workers were told to end already.
bool Agent::resume() {
  if (phase_ != Phase::ending || countdown_.told()) return false;
  phase_ = Phase::running;
  countdown_.call_off_end();
  return true;
}

void Agent::on_over(const wire::Over& over) {
  news_.on_over(over);
  if (wire::outcome_in(over.outcome) != Outcome::failed || !record().is_part() || phase_ != Phase::running) return;
  phase_ = Phase::ending;  // those who wait are told as well: give them the time to go by themselves
  countdown_.end_at(clock_.now() + kPatience);
}

/// The job is stopped from elsewhere.
void Agent::on_stop(const wire::Stop& stop) {
  if (!record().is_part() || phase_ == Phase::settling) return;
  if (phase_ != Phase::stopping) {
    verdict_.interrupt(0);
    phase_ = Phase::stopping;
    if (!stop.force) end_workers();
  }
  if (stop.force) kill_workers();
}

void Agent::on_hopeless(const Error& error) {
  if (phase_ == Phase::settling) return;
  say(fmt::format("pliant: job '{}' failed: {}\n", record().name, error.message));
  reported_ = true;
  verdict_.fail(1);
  phase_ = Phase::stopping;
  end_workers();
  if (workers_.alive() == 0) begin_settling();
}

}  // namespace pliant::cli
