// How the agent starts.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "apps/pliant/agent.h"
#include "apps/pliant/job_records.h"
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
  WorkerEnv env{record.job_name(),
                plan.coordinator,
                workers,
                plan.threads,
                plan.seed,
                plan.env,
                dir,
                record.host.name,
                secret_file(dir),
                plan.interface_name,
                plan.ports,
                plan.store,
                plan.trusted_network};
  if (!plan.store.empty()) env.coordinator = "file:" + place_file(dir);
  if (env.threads <= 0) env.threads = std::max(1, usable_cores() / here);
  return {record.program, record.argv, std::move(environment), env, record.output_dir, options.output};
}

agent::SupervisionOptions supervision_options(const RunOptions& options, const OwnRecord& job) {
  const auto& record = job.get();
  return {record.name,      record.job_name(), record.host.name,   record.plan.supply.kind,
          record.is_part(), job.attached(),    record.plan.wanted, options.grace};
}

}  // namespace

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
      news_(job_.get().plan.supply.price),
      supervision_(clock_, supervision_options(options_, job_), *this) {}

Agent::~Agent() = default;

Status Agent::start() {
  auto signals = SignalWatch::start(
      loop_, [this](int number) { supervision_.on_signal(number); }, options_.join != "-");
  if (!signals.ok()) return signals.error();
  signals_ = std::move(signals).value();
  auto here = record().is_part() ? record().host.slots : record().plan.wanted;
  PLIANT_TRY(workers_.prepare(here, record().is_part() ? here : record().plan.most));
  for (const auto& worker : record().workers) {
    auto runs = workers_.take_up(worker);
    if (!runs.ok()) return runs.error();
    if (runs.value())
      supervision_.take_up(worker.id, worker.process.pid);
    else if (record().is_part() || !worker.told)  // on one host a coordinator has seen to it, unless there was none
      supervision_.miss({worker.id, worker.process.pid, worker.told || !record().is_part()});
  }
  events_.open(open_records(record().plan, record().is_part() ? "agent-" + record().host.name : "agent"));
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
    supervision_.on_connected();
  };
  events.on_message = [this](const wire::Message& message) { on_message(message); };
  events.on_hopeless = [this](const Error& error) { supervision_.on_hopeless(error); };
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
  workers_.signal(SIGKILL);
  for (auto& worker : workers_.all())
    while (worker.process.running() && !worker.process.reap()) usleep(1000);
  say(fmt::format("pliant run: {}\n", error.message));
  if (error.code == Code::not_found) return 127;
  return error.code == Code::invalid ? 126 : 1;
}

// ---- slots ----

SlotEvents Agent::slot_events() {
  SlotEvents events;
  events.on_slots = [this] { on_slots(); };
  events.on_price = [this](double per_hour) { news_.account().set_price(seconds(clock_.now()), per_hour); };
  events.on_notice = [this] { supervision_.on_notice(); };
  events.say = [this](const std::string& lines) { say(lines); };
  return events;
}

void Agent::on_slots() {
  auto start = record().plan.start;
  if (!record().is_part() && !supervision_.word().has_begun() && supply_.slots() < start)
    say(fmt::format("pliant: {} of {} workers can be had: the job waits (--min lets it begin with fewer)\n",
                    supply_.slots(), start));
  supervision_.on_slots(supply_.slots());
}

}  // namespace pliant::cli
