#include "apps/pliant/head.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <utility>

#include "apps/pliant/agent.h"
#include "apps/pliant/join.h"
#include "apps/pliant/ticket.h"
#include "base/log.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr int kMostFailures = 3;                           // of a host, before there is a view
constexpr Nanos kGoodRun = 10s;                            // what failed before is forgotten
constexpr Nanos kPauseAtStart = 1s;                        // between two attempts to lead to a host; it doubles
constexpr Nanos kFirstPause = 100ms, kLongestPause = 30s;  // ... once there is a view
constexpr Nanos kMargin = 5s;                              // for agents to end after their workers
constexpr Nanos kBetweenKills = 2s;
constexpr std::size_t kLastWords = 5;
constexpr std::string_view kTcp = "tcp:";

/// Somebody wanted it to end.
bool was_told_to(const Ending& ending) {
  return ending.signal == SIGTERM || ending.code == 128 + SIGTERM || ending.code == 128 + SIGINT;
}

}  // namespace

Head::Head(const RunOptions& options, JobRecord record, JobDir dir, std::vector<std::string> environment)
    : options_(options),
      record_(std::move(record)),
      dir_(std::move(dir)),
      environment_(std::move(environment)),
      started_(clock_.now()),
      console_(STDOUT_FILENO, STDERR_FILENO),
      reporter_(console_, options_.status, dir_.path()),
      account_(record_.plan.price.empty() ? Prices() : parse_prices(record_.plan.price).or_throw()) {
  state_.wanted = record_.plan.wanted;
}

Head::~Head() {
  for (const auto& host : hosts_)
    if (host.runs()) loop_.unwatch(host.process->pidfd());
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
  events_.note("over", std::string(name_of(outcome_)));
  reporter_.finish(record_.name, outcome_, snapshot());
  reporter_.present(account_.words(seconds(clock_.now())), events_);
  console_.flush();
  sweep_parts();
  return exit_status_;
}

/// A host that was lost shortly before the end has left its part of the job; of hosts that are this machine it is here.
void Head::sweep_parts() {
  auto base = std::filesystem::path(dir_.path()).parent_path();
  for (const auto& host : hosts_) sweep(base, base / part_name(record_.name, host.place.name));
}

Status Head::start() {
  auto signals = SignalWatch::start(loop_, [this](int number) { on_signal(number); });
  if (!signals.ok()) return signals.error();
  signals_ = std::move(signals).value();
  getrlimit(RLIMIT_NOFILE, &files_);
  files_.rlim_cur = files_.rlim_max;  // for the coordinator, which has a connection to every worker
  events_.open(record_.plan, "agent");
  events_.note(record_.hosts.empty() ? "begun" : "attached", record_.name);
  keep_coordinator();
  PLIANT_TRY(open_supply());
  for (const auto& place : record_.plan.hosts) add_host(place);
  if (record_.plan.discovery.empty()) return {};
  discovery_.emplace(
      loop_, record_.plan.discovery, dir_.path(), [this](const auto& hosts) { on_hosts(hosts); },
      [this](const std::string& why) { say(fmt::format("pliant: {}\n", why)); });
  return {};
}

// ---- the coordinator ----

void Head::keep_coordinator() {
  KeeperEvents events;
  events.on_connected = [this] {
    events_.note("coordinator", "connected");
    wire::AgentHello watching{record_.name, "", 0};
    keeper_->send(watching);
    keeper_->send(watching);  // that is all
  };
  events.on_message = [this](const wire::Message& message) { on_message(message); };
  events.on_hopeless = [this](const Error& error) { on_hopeless(error); };
  events.offer = [this] { return Result<std::string>("tcp:" + record_.plan.endpoint); };
  events.on_place = [this](const std::string& address) { on_place(address); };
  events.on_trouble = [this](const std::string& line) { say(fmt::format("pliant: {}\n", line)); };
  KeeperOptions options{dir_.path(), record_.plan.coordinator, std::nullopt, record_.plan.store, record_.name, true,
                        files_};
  if (!record_.plan.store.empty())
    options.credentials = agent_credentials(record_.name, net::Secret::from_file(secret_file(dir_.path())).or_throw());
  keeper_.emplace(loop_, std::move(options), std::move(events));
}

/// Agents that are led to from now on ask the coordinator where it is.
void Head::on_place(const std::string& address) {
  events_.note("place", address);
  auto written = write_place(dir_.path(), address);
  auto ticket = read_ticket(ticket_file(dir_.path()));
  if (written.ok() && ticket.ok() && address.starts_with(kTcp)) {
    ticket.value().endpoint = address.substr(kTcp.size());
    written = write_ticket(dir_.path(), ticket.value());
  }
  if (!written.ok()) say(fmt::format("pliant: {}\n", written.error().message));
}

void Head::on_message(const wire::Message& message) {
  if (const auto* state = std::get_if<wire::JobState>(&message)) {
    if (state_.view.epoch > 0 && state->view.restarts > state_.view.restarts) say(restart_line(state->view));
    bool newer = std::pair(state->view.epoch, state->view.term) > std::pair(state_.view.epoch, state_.view.term);
    if (over_ && newer && phase_ == Phase::ending) {  // somebody trains on whom the coordinator had not heard of
      over_.reset();
      end_at_.reset();
      phase_ = Phase::running;
    }
    state_ = *state;
    account_.on_state(seconds(clock_.now()), *state);
    ask_provider();
  } else if (const auto* progress = std::get_if<wire::Progress>(&message)) {
    progress_ = *progress;
    pace_.on_progress(clock_.now(), *progress);
    account_.on_progress(seconds(clock_.now()), *progress);
  } else if (const auto* over = std::get_if<wire::Over>(&message)) {
    on_over(*over);
  } else if (const auto* refusal = std::get_if<wire::Refusal>(&message)) {
    log::warn("the coordinator refuses this agent: {}", printable(refusal->reason));
  }
}

void Head::on_over(const wire::Over& over) {
  over_ = over;
  if (wire::outcome_in(over.outcome) == Outcome::failed && phase_ == Phase::running)
    failure_ = over.reason.empty() ? "no worker has finished it" : printable(over.reason);
  if (phase_ == Phase::running) finish_soon();
}

void Head::on_hopeless(const Error& error) {
  failure_ = error.message;
  if (phase_ == Phase::running) finish_soon();
  signal_all(SIGTERM);
}

/// The agents hear of the end as well, and go when their workers have gone.
void Head::finish_soon() {
  phase_ = Phase::ending;
  if (provider_) provider_->request(0);
  end_at_ = clock_.now() + options_.grace + kMargin;
}

// ---- signals ----

void Head::on_signal(int number) {
  bool force = number == SIGQUIT || phase_ == Phase::stopping;
  if (phase_ == Phase::running) {
    interrupted_ = true;
    exit_status_ = 128 + number;
    say(fmt::format("pliant: stopping job '{}'{}\n", record_.name,
                    number == SIGINT ? " (Ctrl-C again kills its workers at once)" : ""));
  }
  phase_ = Phase::stopping;
  stop_all(force);
}

void Head::stop_all(bool force) {
  if (provider_) provider_->request(0);
  stop_wanted_ = force || stop_wanted_.value_or(false);
  end_at_ = clock_.now() + (force ? Nanos(0) : Nanos(options_.grace)) + kMargin;
  leave_at_ = *end_at_ + kMargin;
}

void Head::signal_all(int number) {
  for (const auto& host : hosts_)
    if (host.runs()) host.process->signal_group(number);
}

void Head::tick() {
  auto now = clock_.now();
  for (auto& host : hosts_) {
    for (auto& tail : host.tails) tail.poll(console_);
    if (host.again_at && now >= *host.again_at && phase_ == Phase::running && host.wanted) lead_to(host);
  }
  follow_outputs();
  for (auto& tail : tails_) tail.poll(console_);
  ask_provider();
  console_.flush();
  if (stop_wanted_ && keeper_->send(wire::Stop{"", static_cast<std::uint8_t>(*stop_wanted_)})) stop_wanted_.reset();
  if (end_at_ && now >= *end_at_) {
    signal_all(kill_at_ ? SIGKILL : SIGTERM);
    kill_at_ = now;
    end_at_ = now + kBetweenKills;
  }
  reporter_.update(now, snapshot());
  bool enough = leave_at_ && now >= *leave_at_;
  if (phase_ == Phase::running || !all_gone() || (!output_copied() && !enough)) return;
  if (std::exchange(concluded_, true)) return;
  conclude();
  if (provider_) provider_->end();
  keeper_->end();
  keeper_->forget([this] { loop_.stop(); });
}

/// An agent that could not be told that the job is finished does not make it fail.
void Head::conclude() {
  outcome_ = over_ ? wire::outcome_in(over_->outcome) : Outcome::failed;
  if (outcome_ == Outcome::finished) {
    exit_status_ = 0;
    return;
  }
  if (interrupted_ || outcome_ == Outcome::stopped) {
    outcome_ = Outcome::stopped;
    if (!interrupted_) exit_status_ = 128 + SIGTERM;
    return;
  }
  say(fmt::format("pliant: job '{}' failed: {}\n", record_.name, failure_));
  exit_status_ = std::max(exit_status_, 1);
}

// ---- hosts ----

std::string Head::output_of(const Host& host, const char* end) const {
  return fmt::format("{}/host-{}.{}", dir_.path(), host.place.name, end);
}

void Head::add_host(const HostSlots& place) {
  auto& host = hosts_.emplace_back();
  host.place = place;
  auto known = std::ranges::find_if(record_.hosts, [&](const HostRecord& each) { return each.name == place.name; });
  if (known != record_.hosts.end())
    take_up(host, known->process);
  else
    lead_to(host);
}

/// The command that starts the host's agent there; here, if this is the host.
Result<SpawnOptions> Head::way_to(const Host& host) const {
  auto words = is_this_host(host.place.name) ? std::vector<std::string>() : words_of(record_.plan.via, host.place.name);
  auto program = words.empty() ? Result<std::string>(record_.plan.pliant) : find_program(words[0]);
  if (!program.ok()) return program.error();
  for (const std::string& word : {record_.plan.pliant, std::string("run"), std::string("--join=-"),
                                  "--host=" + host.place.name, fmt::format("--slots={}", host.place.slots)})
    words.push_back(word);
  SpawnOptions spawn;
  spawn.path = program.value();
  spawn.argv = std::move(words);
  spawn.env = environment_;
  spawn.in = ticket_file(dir_.path());
  spawn.out = output_of(host, "out");
  spawn.err = output_of(host, "err");
  spawn.append = host.failures > 0 || host.process;
  getrlimit(RLIMIT_NOFILE, &spawn.files);
  return spawn;
}

void Head::lead_to(Host& host) {
  host.again_at.reset();
  bool first = !host.process && host.tails.empty();
  auto spawn = way_to(host);
  auto process = spawn.ok() ? WatchedProcess::spawn(spawn.value()) : Result<WatchedProcess>(spawn.error());
  if (!process.ok()) {
    failure_ = process.error().message;
    say(fmt::format("pliant: host {}: {}\n", host.place.name, failure_));
    return give_up_on(host);
  }
  host.process = std::move(process).value();
  host.since = clock_.now();
  std::erase_if(record_.hosts, [&](const HostRecord& each) { return each.name == host.place.name; });
  record_.hosts.push_back({host.place.name, host.process->id()});
  if (auto written = dir_.write(record_); !written.ok()) say(fmt::format("pliant: {}\n", written.error().message));
  events_.note("host", fmt::format("{}: process {}", host.place.name, host.process->id().pid));
  watch(host, !first);
}

void Head::take_up(Host& host, const ProcessId& process) {
  auto taken = WatchedProcess::take_up(process);
  if (!taken.ok()) return lead_to(host);
  host.process = std::move(taken).value();
  watch(host, true);
}

void Head::watch(Host& host, bool from_now) {
  loop_.watch(host.process->pidfd(), [this] { reap(); });
  if (!host.tails.empty()) return;  // they follow the files, whoever writes them
  for (auto stream : {Stream::out, Stream::err}) {
    auto tail = OutputTail::open(output_of(host, stream == Stream::out ? "out" : "err"), stream, "", from_now);
    if (tail.ok())
      host.tails.push_back(std::move(tail).value());
    else
      say(fmt::format("pliant: {}\n", tail.error().message));
  }
}

void Head::reap() {
  for (auto& host : hosts_) {
    if (!host.process || !host.process->reap()) continue;
    loop_.unwatch(host.process->pidfd());
    on_end(host);
  }
}

void Head::on_end(Host& host) {
  auto ending = *host.process->ending();
  const auto& name = host.place.name;
  events_.note("host", fmt::format("{}: {}", name, ending.words()));
  if (phase_ != Phase::running || !host.wanted) {
    if (!ending.good() && !interrupted_ && phase_ == Phase::ending)
      exit_status_ = std::max(exit_status_, ending.exit_status());
    return;
  }
  if (was_told_to(ending)) {
    say(fmt::format("pliant: host {} has left the job\n", name));
    host.wanted = false;
    return give_up_on(host);
  }
  host.failures = clock_.now() - host.since > kGoodRun ? 1 : host.failures + 1;
  auto words = last_lines(output_of(host, "err"), kLastWords);
  failure_ = fmt::format("host {}: {}", name, ending.words());
  for (const auto& line : words) failure_ += "\n    " + line;
  bool hopeless = host.failures >= kMostFailures && state_.view.epoch == 0;
  if (hopeless) return give_up_on(host);
  host.again_at = clock_.now() + pause_before(host);
  if (host.failures == 1 && ending.code != kAgentThere)
    say(fmt::format("pliant: host {}: its agent has ended ({}); trying again\n", name, ending.words()));
}

/// Its workers may have died with the agent, and the others may have to wait for the next one to prove it.
Nanos Head::pause_before(const Host& host) const {
  auto first = state_.view.epoch > 0 ? kFirstPause : kPauseAtStart;
  return std::min(kLongestPause, first * (1 << std::min(host.failures - 1, 9)));
}

/// Can the others do without it?
void Head::give_up_on(Host& host) {
  host.wanted = false;
  auto needed = state_.view.epoch > 0 ? 1 : record_.plan.start;
  if (slots() >= needed || !record_.plan.discovery.empty()) return;
  if (phase_ != Phase::running) return;
  phase_ = Phase::ending;
  stop_all(false);
}

std::uint32_t Head::slots() const {
  std::uint32_t sum = 0;
  for (const auto& host : hosts_) sum += host.wanted ? host.place.slots : 0;
  return sum;
}

bool Head::all_gone() const {
  return provider_gone() && std::ranges::none_of(hosts_, [](const Host& host) { return host.runs(); });
}

/// What the script says now.
void Head::on_hosts(const std::vector<HostSlots>& places) {
  if (phase_ != Phase::running) return;
  for (auto& host : hosts_) {
    bool named = std::ranges::any_of(places, [&](const auto& place) { return place.name == host.place.name; });
    if (host.wanted && !named) {
      say(fmt::format("pliant: host {} is not there any more: its workers leave\n", host.place.name));
      keeper_->send(wire::Stop{host.place.name, 0});
      host.wanted = false;
      host.again_at.reset();
    } else if (!host.wanted && named && !host.runs()) {
      host.wanted = true;
      host.failures = 0;
      lead_to(host);
    }
  }
  for (const auto& place : places) {
    auto same = [&](const Host& host) { return host.place.name == place.name; };
    if (std::ranges::any_of(hosts_, same)) continue;
    if (!hosts_.empty()) say(fmt::format("pliant: host {} is new: {} slots\n", place.name, place.slots));
    add_host(place);
  }
  follow_slots();
}

/// As many workers as slots; but those who leave a host take their places with them, and are waited for.
void Head::follow_slots() {
  bool somebody_leaves = std::ranges::any_of(hosts_, [](const Host& host) { return !host.wanted && host.runs(); });
  auto wanted = std::clamp(slots(), record_.plan.least, record_.plan.most);
  if (options_.follows_slots && !somebody_leaves && slots() > 0 && wanted != state_.wanted)
    keeper_->send(wire::Resize{wanted});
}

// ---- what it looks like ----

bool Head::output_copied() {
  bool all = true;
  for (auto& host : hosts_)
    for (auto& tail : host.tails) all = tail.drain(console_) && all;
  for (auto& tail : tails_) all = tail.drain(console_) && all;
  console_.flush();
  return all && console_.idle();
}

Snapshot Head::snapshot() const {
  Snapshot now;
  bool formed = state_.view.epoch > 0;
  now.phase = phase_ == Phase::stopping ? "stopping"
              : phase_ == Phase::ending ? "ending"
              : formed                  ? "running"
                                        : "starting";
  now.workers = static_cast<int>(state_.wanted);
  now.alive = static_cast<int>(formed ? state_.view.members.size() : state_.spare);
  now.elapsed = clock_.now() - started_;
  now.at = unix_seconds();
  now.progress = progress_;
  if (phase_ == Phase::running) now.seconds_left = pace_.seconds_left(clock_.now());
  now.bill = account_.lines(seconds(clock_.now()));
  return now;
}

void Head::say(const std::string& lines) { console_.write(Stream::err, lines); }

}  // namespace pliant::cli
