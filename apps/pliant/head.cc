#include "apps/pliant/head.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <utility>

#include "apps/pliant/agent.h"
#include "apps/pliant/job_records.h"
#include "apps/pliant/status_file.h"
#include "apps/pliant/ticket.h"
#include "base/log.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kMargin = 5s;  // for agents to end after their workers
constexpr Nanos kBetweenKills = 2s;
constexpr std::string_view kTcp = "tcp:";

}  // namespace

Head::Head(const RunOptions& options, JobRecord record, JobDir dir, std::vector<std::string> environment)
    : options_(options),
      job_(std::move(record), std::move(dir),
           [this](const Error& error) { say(fmt::format("pliant: {}\n", error.message)); }),
      environment_(std::move(environment)),
      started_(clock_.now()),
      console_(STDOUT_FILENO, STDERR_FILENO),
      reporter_(console_, options_.status, job_.path()),
      supply_(loop_, job_.get(), job_.path(), events_, supply_events()),
      lead_(job_.get().plan.wanted),
      news_(job_.get().plan.supply.price) {}

Head::~Head() {
  for (const auto& host : hosts_)
    if (host.runs()) loop_.unwatch(host.process()->pidfd());
}

int Head::run() {
  if (auto started = start(); !started.ok()) {
    say(fmt::format("pliant run: {}\n", started.error().message));
    console_.flush();
    return 1;
  }
  loop_.every(20ms, [this] { tick(); });
  loop_.run();
  discovery_.reset();
  console_.erase();
  events_.note("over", std::string(name_of(lead_.verdict().outcome())));
  reporter_.finish(record().name, lead_.verdict().outcome(), snapshot());
  reporter_.present(news_.account().words(seconds(clock_.now())), events_);
  console_.flush();
  sweep_parts();
  return lead_.verdict().exit_status();
}

/// A host that was lost shortly before the end has left its part of the job; of hosts that are this machine it is here.
void Head::sweep_parts() {
  auto base = std::filesystem::path(job_.path()).parent_path();
  for (const auto& host : hosts_) sweep(base, base / part_name(record().name, host.name()));
}

Status Head::start() {
  auto signals = SignalWatch::start(loop_, [this](int number) { on_signal(number); });
  if (!signals.ok()) return signals.error();
  signals_ = std::move(signals).value();
  getrlimit(RLIMIT_NOFILE, &files_);
  files_.rlim_cur = files_.rlim_max;  // for the coordinator, which has a connection to every worker
  events_.open(open_records(record().plan, "agent"));
  events_.note(record().hosts.empty() ? "begun" : "attached", record().name);
  keep_coordinator();
  if (auto seen = read_status(job_.path())) news_.account().carry_over(seen->bill);
  PLIANT_TRY(supply_.open(Nanos(options_.grace)));
  ask_supply();
  for (const auto& place : record().plan.hosts) add_host(place);
  if (record().plan.discovery.empty()) return {};
  discovery_.emplace(
      loop_, record().plan.discovery, job_.path(), [this](const auto& hosts) { on_hosts(hosts); },
      [this](const std::string& why) { say(fmt::format("pliant: {}\n", why)); });
  return {};
}

// ---- the coordinator ----

void Head::keep_coordinator() {
  KeeperEvents events;
  events.on_connected = [this] {
    events_.note("coordinator", "connected");
    wire::AgentHello watching{record().name, "", 0};
    keeper_->send(watching);
    keeper_->send(watching);  // that is all
    lead_.on_connected();
  };
  events.on_message = [this](const wire::Message& message) { on_message(message); };
  events.on_hopeless = [this](const Error& error) { on_hopeless(error); };
  events.offer = [this] { return Result<std::string>("tcp:" + record().plan.endpoint); };
  events.on_place = [this](const std::string& address) { on_place(address); };
  events.on_trouble = [this](const std::string& line) { say(fmt::format("pliant: {}\n", line)); };
  KeeperOptions options{job_.path(), record().plan.coordinator, std::nullopt, record().plan.store, record().name, true,
                        files_};
  if (!record().plan.store.empty())
    options.credentials = agent_credentials(record().name, net::Secret::from_file(secret_file(job_.path())).or_throw());
  keeper_.emplace(loop_, std::move(options), std::move(events));
}

/// Agents that are led to from now on ask the coordinator where it is.
void Head::on_place(const std::string& address) {
  events_.note("place", address);
  job_.note_place(address);
  auto ticket = read_ticket(ticket_file(job_.path()));
  if (!ticket.ok() || !address.starts_with(kTcp)) return;
  ticket.value().endpoint = address.substr(kTcp.size());
  auto written = write_ticket(job_.path(), ticket.value());
  if (!written.ok()) say(fmt::format("pliant: {}\n", written.error().message));
}

void Head::on_message(const wire::Message& message) {
  if (const auto* state = std::get_if<wire::JobState>(&message)) {
    on_state(*state);
  } else if (const auto* progress = std::get_if<wire::Progress>(&message)) {
    news_.on_progress(clock_.now(), *progress);
  } else if (const auto* over = std::get_if<wire::Over>(&message)) {
    if (lead_.on_over(*over)) finish_soon();
  } else if (const auto* stop = std::get_if<wire::Stop>(&message)) {
    if (lead_.heeds(*stop)) stop_job(SIGTERM, wire::stopping_in(*stop));
  } else if (const auto* refusal = std::get_if<wire::Refusal>(&message)) {
    log::warn("the coordinator refuses this agent: {}", printable(refusal->reason));
  }
}

void Head::on_state(const wire::JobState& state) {
  bool ended = !lead_.running();
  auto news = lead_.on_state(state);
  news_.on_state(clock_.now(), state);
  if (news == agent::StateNews::again) say(agent::restart_line(state.view));
  if (ended && lead_.running()) countdown_.call_off_end();
  ask_supply();
}

void Head::on_hopeless(const Error& error) {
  lead_.set_failure(error.message);
  if (lead_.end()) finish_soon();
  signal_all(SIGTERM);
}

/// The agents hear of the end as well, and go when their workers have gone.
void Head::finish_soon() {
  for (auto& host : hosts_) host.hurry(clock_.now());  // an agent that was killed has workers, perhaps
  supply_.ask_for_none();
  countdown_.end_at(clock_.now() + options_.grace + kMargin);
}

// ---- signals ----

void Head::on_signal(int number) {
  bool at_once = number == SIGQUIT || lead_.phase() == Phase::stopping;
  stop_job(number, at_once ? wire::Stopping::at_once : wire::Stopping::in_order);
}

void Head::stop_job(int number, wire::Stopping how) {
  if (lead_.stop(number))
    say(fmt::format("pliant: stopping job '{}'{}\n", record().name,
                    number == SIGINT ? " (Ctrl-C again kills its workers at once)" : ""));
  for (auto& host : hosts_) host.hurry(clock_.now());  // an agent that was killed has workers, perhaps
  stop_all(how);
}

void Head::stop_all(wire::Stopping how) {
  supply_.ask_for_none();
  lead_.wish().ask(how);
  auto end = clock_.now() + (how == wire::Stopping::at_once ? Nanos(0) : Nanos(options_.grace)) + kMargin;
  countdown_.end_at(end);
  countdown_.leave_at(end + kMargin);
}

void Head::signal_all(int number) {
  for (const auto& host : hosts_)
    if (host.runs()) host.process()->signal_group(number);
}

void Head::tick() {
  auto now = clock_.now();
  for (auto& host : hosts_) {
    host.poll(console_);
    if (host.due(now)) lead_to(host);
  }
  supply_.poll(console_);
  ask_supply();
  console_.flush();
  if (auto stop = lead_.wish().untold(); stop && keeper_->send(*stop)) lead_.wish().told();
  if (countdown_.end_due(now)) {
    for (auto& host : hosts_) host.call_off();
    signal_all(countdown_.told() ? SIGKILL : SIGTERM);
    countdown_.kill_at(now);
    countdown_.end_at(now + kBetweenKills);
  }
  reporter_.update(now, snapshot());
  if (lead_.running() || !all_gone() || (!output_copied() && !countdown_.leave_due(now))) return;
  if (!lead_.may_conclude(now, keeper_->connected()) || !lead_.conclude()) return;
  if (lead_.verdict().outcome() == Outcome::failed)
    say(fmt::format("pliant: job '{}' failed: {}\n", record().name, lead_.failure()));
  supply_.end();
  keeper_->end();
  keeper_->forget([this] { loop_.stop(); });
}

// ---- the supply ----

HostSupplyEvents Head::supply_events() {
  HostSupplyEvents events;
  events.on_price = [this](double per_hour) { news_.account().set_price(seconds(clock_.now()), per_hour); };
  events.say = [this](const std::string& lines) { say(lines); };
  return events;
}

void Head::ask_supply() {
  if (lead_.running())
    supply_.ask_for(lead_.word().state().wanted + record().plan.spare, lead_.word().has_begun(), clock_.now());
}

// ---- what it looks like ----

bool Head::output_copied() {
  bool all = true;
  for (auto& host : hosts_) all = host.drain(console_) && all;
  all = supply_.drain(console_) && all;
  console_.flush();
  return all && console_.idle();
}

Snapshot Head::snapshot() const {
  Snapshot now;
  const auto& state = lead_.word().state();
  bool formed = lead_.word().has_begun();
  auto phase = lead_.phase();
  now.phase = phase == Phase::stopping ? "stopping"
              : phase == Phase::ending ? "ending"
              : formed                 ? "running"
                                       : "starting";
  now.alive = static_cast<int>(formed ? state.view.members.size() : state.spare);
  now.elapsed = clock_.now() - started_;
  now.at = unix_seconds();
  news_.describe(now, lead_.word(), clock_.now(), lead_.running());
  return now;
}

void Head::say(const std::string& lines) { console_.write(Stream::err, lines); }

}  // namespace pliant::cli
