// The agent's first half: how it starts, and what it does for the coordinator.
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "apps/pliant/agent.h"
#include "base/log.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

constexpr std::size_t kMostAccusations = 4096;

WorkerSetOptions worker_options(const RunOptions& options, const JobRecord& record, const std::string& dir,
                                std::vector<std::string> environment) {
  const auto& plan = record.plan;
  auto workers = static_cast<int>(plan.wanted);
  WorkerEnv env{record.name, plan.coordinator, workers,          plan.threads,
                plan.seed,   plan.env,         secret_file(dir), plan.interface_name};
  if (!plan.hosts.empty()) env.coordinator = "tcp:" + plan.endpoint;
  if (env.threads <= 0) env.threads = std::max(1, usable_cores() / workers);
  return {record.program, record.argv, std::move(environment), env, record.output_dir, options.output,
          plan.hosts,     plan.via};
}

std::uint32_t slots_of(const JobPlan& plan) {
  std::uint32_t slots = 0;
  for (const auto& host : plan.hosts) slots += host.slots;
  return slots;
}

}  // namespace

Agent::Agent(const RunOptions& options, JobRecord record, JobDir dir, std::vector<std::string> environment)
    : options_(options),
      record_(std::move(record)),
      dir_(std::move(dir)),
      started_(clock_.now()),
      console_(STDOUT_FILENO, STDERR_FILENO),
      reporter_(console_, options_.status, dir_.path()),
      workers_(loop_, console_, worker_options(options_, record_, dir_.path(), std::move(environment)),
               [this] { reap(); }),
      attached_(!record_.workers.empty()) {
  state_.wanted = record_.plan.wanted;
}

Agent::~Agent() = default;

Status Agent::start() {
  PLIANT_TRY(watch_signals());
  PLIANT_TRY(workers_.prepare(record_.plan.wanted, record_.plan.most));
  for (const auto& worker : record_.workers) PLIANT_TRY(workers_.take_up(worker));
  events_.open(record_.plan, "agent");
  events_.note(attached_ ? "attached" : "begun", record_.name);
  keep_coordinator();
  return {};
}

Status Agent::watch_signals() {
  for (int number : {SIGPIPE, SIGXFSZ}) signal(number, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // if it came to us ignored, the kernel would reap our children
  sigset_t wanted;
  sigemptyset(&wanted);
  for (int number : {SIGINT, SIGTERM, SIGQUIT}) sigaddset(&wanted, number);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&wanted, SIGHUP);  // nohup wants it ignored
  if (sigprocmask(SIG_BLOCK, &wanted, nullptr) != 0) return errno_error("sigprocmask");
  signals_ = Fd(signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals_) return errno_error("signalfd");
  loop_.watch(signals_.get(), [this] {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) on_signal(static_cast<int>(info.ssi_signo));
  });
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
  keeper_.emplace(loop_, dir_.path(), record_.plan.coordinator, workers_.files(), std::move(events));
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
  wire::AgentHello hello{record_.name, "", slots_of(record_.plan)};
  keeper_->send(hello);
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
  worker.reported =
      keeper_->send(wire::Ended{worker.id, static_cast<std::uint8_t>(ending.good() ? 1 : 0), ending.words()});
}

void Agent::on_message(const wire::Message& message) {
  if (const auto* wish = std::get_if<wire::Start>(&message)) {
    start_worker(wish->id);
  } else if (const auto* state = std::get_if<wire::JobState>(&message)) {
    on_state(*state);
  } else if (const auto* progress = std::get_if<wire::Progress>(&message)) {
    progress_ = *progress;
    pace_.on_progress(clock_.now(), *progress);
  } else if (const auto* complaint = std::get_if<wire::Complaint>(&message)) {
    if (accusations_.size() < kMostAccusations) accusations_.push_back({complaint->id, printable(complaint->reason)});
  } else if (const auto* parted = std::get_if<wire::Parted>(&message)) {
    explain_end(parted->id, parted->goodbye != 0);
  } else if (std::holds_alternative<wire::Over>(message)) {
    over_ = true;
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
    record_.workers.push_back({worker.process.id(), worker.out, worker.err, id, worker.host});
    write_record_soon();
    keeper_->send(wire::Started{id, worker.process.id().pid});
    events_.note("started", id, fmt::format("process {}", worker.process.id().pid));
    return;
  }
  if (attached_ || state_.view.epoch > 0) {  // those who run are not concerned
    say(fmt::format("pliant: {}\n", started.error().message));
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
  state_ = state;
  if (!first || phase_ != Phase::ending || kill_at_) return;
  // Whoever failed did so in a job that had begun: the others know how to go on.
  phase_ = Phase::running;
  end_at_.reset();
  for (const auto& death : deaths_) announce(death);
}

void Agent::on_hopeless(const Error& error) {
  if (phase_ == Phase::settling) return;
  say(fmt::format("pliant: job '{}' failed: {}\n", record_.name, error.message));
  reported_ = true;
  exit_status_ = 1;
  phase_ = Phase::stopping;
  end_workers();
  if (workers_.alive() == 0) begin_settling();
}

}  // namespace pliant::cli
