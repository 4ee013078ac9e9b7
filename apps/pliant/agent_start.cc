// The agent's first half: how it starts, and what it does for the coordinator.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "apps/pliant/agent.h"
#include "base/log.h"
#include "base/system.h"
#include "net/tcp.h"

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
      record_(std::move(record)),
      dir_(std::move(dir)),
      started_(clock_.now()),
      console_(STDOUT_FILENO, STDERR_FILENO),
      reporter_(console_, options_.status, dir_.path()),
      workers_(loop_, console_, worker_options(options_, record_, dir_.path(), std::move(environment)),
               [this] { reap(); }),
      account_(record_.plan.price.empty() ? Prices() : parse_prices(record_.plan.price).or_throw()),
      attached_(!record_.workers.empty()) {
  state_.wanted = record_.plan.wanted;
}

Agent::~Agent() = default;

Status Agent::start() {
  auto signals = SignalWatch::start(
      loop_, [this](int number) { on_signal(number); }, options_.join != "-");
  if (!signals.ok()) return signals.error();
  signals_ = std::move(signals).value();
  auto here = record_.is_part() ? record_.host.slots : record_.plan.wanted;
  PLIANT_TRY(workers_.prepare(here, record_.is_part() ? here : record_.plan.most));
  for (const auto& worker : record_.workers) {
    auto runs = workers_.take_up(worker);
    if (!runs.ok()) return runs.error();
    // On one host the coordinator has seen to it; on another one, only this can prove it.
    if (!runs.value() && record_.is_part()) missed_.push_back(worker);
  }
  events_.open(record_.plan, record_.is_part() ? "agent-" + record_.host.name : "agent");
  events_.note(attached_ ? "attached" : "begun", record_.name);
  PLIANT_TRY(open_supply());
  keep_coordinator();
  watch_for_notice();
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
  events.offer = [this] { return offer_place(); };
  events.on_place = [this](const std::string& address) { on_place(address); };
  events.on_trouble = [this](const std::string& line) { say(fmt::format("pliant: {}{}\n", where(), line)); };
  const auto& plan = record_.plan;
  KeeperOptions options{dir_.path(), plan.coordinator,   std::nullopt,    plan.store,
                        record_.job, !record_.is_part(), workers_.files()};
  if (record_.is_part())
    options.credentials = agent_credentials(record_.job, net::Secret::from_file(secret_file(dir_.path())).or_throw());
  keeper_.emplace(loop_, std::move(options), std::move(events));
}

/// The coordinator may come here if its host is lost: where is it then?
Result<std::string> Agent::offer_place() {
  if (own_place_.empty()) {
    auto there = net::parse_endpoint(record_.plan.endpoint);
    if (!there.ok()) return there.error();
    const auto& chosen = record_.plan.interface_name;
    auto address = chosen.empty() ? net::address_towards(there.value().address) : net::address_of_interface(chosen);
    if (!address.ok()) return address.error();
    auto ports = net::parse_ports(record_.plan.ports.empty() ? "0" : record_.plan.ports);
    auto listener = net::tcp_listen(address.value(), ports.value());
    if (!listener.ok()) return listener.error();
    own_place_ = listener.value().endpoint.text();
  }
  record_.plan.endpoint = own_place_;  // for the coordinator that is started here
  PLIANT_TRY(dir_.write(record_));
  return "tcp:" + own_place_;
}

void Agent::on_place(const std::string& address) {
  events_.note("place", address);
  if (auto written = write_place(dir_.path(), address); !written.ok())
    say(fmt::format("pliant: {}\n", written.error().message));
}

/// This agent is of no use to a job that runs without it.
int Agent::let_go(const Error& error) {
  say(fmt::format("pliant run: {}\n", error.message));
  dir_.release();
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
  wire::AgentHello hello{record_.job_name(), record_.host.name, slots_, record_.plan.kind};
  keeper_->send(hello);
  if (interrupted_ && !record_.is_part()) keeper_->send(wire::Stop{});  // the one before may not have heard it
  for (const auto& worker : missed_) {
    keeper_->send(wire::Started{worker.id, worker.process.pid});
    auto ended = ended_of(worker.id, false, "it ended while there was no agent");
    ended.taken = static_cast<std::uint8_t>(worker.told);  // proof, once more; an earlier coordinator has counted it
    keeper_->send(ended);
  }
  for (auto& worker : workers_.all()) {
    if (worker.process.running())
      keeper_->send(wire::Started{worker.id, worker.process.id().pid});
    else if (!worker.heard_of)
      tell_end(worker);
  }
  keeper_->send(hello);
}

void Agent::tell_end(Worker& worker) {
  const auto& ending = *worker.process.ending();
  auto ended = ended_of(worker.id, ending.good(), ending.words());
  ended.taken = static_cast<std::uint8_t>(worker.leave_by.has_value());
  if (keeper_->send(ended)) unanswered_.insert(worker.id);
  told_ = clock_.now();
}

void Agent::on_message(const wire::Message& message) {
  if (const auto* wish = std::get_if<wire::Start>(&message)) {
    start_worker(wish->id);
  } else if (const auto* state = std::get_if<wire::JobState>(&message)) {
    on_state(*state);
  } else if (const auto* progress = std::get_if<wire::Progress>(&message)) {
    progress_ = *progress;
    pace_.on_progress(clock_.now(), *progress);
    account_.on_progress(seconds(clock_.now()), *progress);
  } else if (const auto* parted = std::get_if<wire::Parted>(&message)) {
    on_parted(*parted);
  } else if (const auto* over = std::get_if<wire::Over>(&message)) {
    on_over(*over);
  } else if (const auto* stop = std::get_if<wire::Stop>(&message)) {
    on_stop(*stop);
  } else if (const auto* refusal = std::get_if<wire::Refusal>(&message)) {
    if (!std::exchange(refused_, true))
      say(fmt::format("pliant: the coordinator refuses this agent: {}\n", printable(refusal->reason)));
  }
}

void Agent::on_parted(const wire::Parted& parted) {
  unanswered_.erase(parted.id);
  std::erase_if(missed_, [&](const WorkerRecord& worker) { return worker.id == parted.id; });
  for (auto& worker : workers_.all()) worker.heard_of = worker.heard_of || worker.id == parted.id;
  for (auto& worker : record_.workers) worker.told = worker.told || worker.id == parted.id;
  write_record_soon();
  explain_end(parted.id, parted.goodbye != 0);
  if (!parted.goodbye) name_early_exit(parted.id);
}

void Agent::start_worker(std::uint64_t id) {
  if (phase_ != Phase::running || workers_.find(id) || cannot_start_) return;
  auto started = workers_.start(id);
  if (started.ok()) {
    const auto& worker = *started.value();
    record_.workers.push_back({worker.process.id(), worker.out, worker.err, id});
    write_record_soon();
    keeper_->send(wire::Started{id, worker.process.id().pid});
    events_.note("started", id, fmt::format("process {}", worker.process.id().pid));
    return;
  }
  if (attached_ || record_.is_part() || state_.view.epoch > 0) {  // those who run are not concerned
    say(fmt::format("pliant: {}{}\n", where(), started.error().message));
    keeper_->send(wire::Ended{id, 0, started.error().message});
    return;
  }
  cannot_start_ = started.error();
  loop_.stop();
}

/// Once for all that are asked for together.
void Agent::write_record_soon() {
  if (std::exchange(record_stale_, true)) return;
  loop_.post([this] {
    record_stale_ = false;
    if (auto written = dir_.write(record_); !written.ok()) say(fmt::format("pliant: {}\n", written.error().message));
  });
}

void Agent::on_state(const wire::JobState& state) {
  bool first = state_.view.epoch == 0 && state.view.epoch > 0;
  bool again = !first && state.view.restarts > state_.view.restarts;
  if (again && !record_.is_part()) say(restart_line(state.view));
  bool newer = std::pair(state.view.epoch, state.view.term) > std::pair(state_.view.epoch, state_.view.term);
  state_ = state;
  if (over_ && newer) take_back_over();
  account_.on_state(seconds(clock_.now()), state);
  if (!first || phase_ != Phase::ending || kill_at_) return;
  // Whoever failed did so in a job that had begun: the others know how to go on.
  phase_ = Phase::running;
  end_at_.reset();
  for (const auto& death : deaths_) announce(death);
}

/// Somebody trains in a view that the coordinator had not heard of when it said that the job was over.
void Agent::take_back_over() {
  over_.reset();
  if (phase_ != Phase::ending || kill_at_) return;
  phase_ = Phase::running;
  end_at_.reset();
}

void Agent::on_over(const wire::Over& over) {
  over_ = over;
  if (wire::outcome_in(over.outcome) != Outcome::failed || !record_.is_part() || phase_ != Phase::running) return;
  phase_ = Phase::ending;  // those who wait are told as well: give them the time to go by themselves
  end_at_ = clock_.now() + kPatience;
}

/// The job is stopped from elsewhere.
void Agent::on_stop(const wire::Stop& stop) {
  if (!record_.is_part() || phase_ == Phase::settling) return;
  if (phase_ != Phase::stopping) {
    interrupted_ = true;
    phase_ = Phase::stopping;
    if (!stop.force) end_workers();
  }
  if (stop.force) kill_workers();
}

void Agent::on_hopeless(const Error& error) {
  if (phase_ == Phase::settling) return;
  say(fmt::format("pliant: job '{}' failed: {}\n", record_.name, error.message));
  reported_ = true;
  outcome_ = Outcome::failed;
  exit_status_ = 1;
  phase_ = Phase::stopping;
  end_workers();
  if (workers_.alive() == 0) begin_settling();
}

}  // namespace pliant::cli
