#include "apps/pliant/chaos_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "apps/pliant/chaos_freezer.h"
#include "apps/pliant/command.h"
#include "base/system.h"

namespace pliant::cli::chaos {
namespace {

using namespace std::chrono_literals;

constexpr int kAttempts = 3;  // to attach another agent
constexpr auto kBetweenAttempts = 500ms;
constexpr Nanos kTimeToResize = 2s;   // until the coordinator has surely heard what was asked for
constexpr auto kBetweenLooks = 20ms;  // at a command that something waits for
constexpr Nanos kTimeForCommands = 30s;

std::string for_how_long(Nanos pause) {
  return fmt::format("for {} ms", std::chrono::duration_cast<std::chrono::milliseconds>(pause).count());
}

std::string after_how_long(Nanos delay) {
  return fmt::format("{} ms later", std::chrono::duration_cast<std::chrono::milliseconds>(delay).count());
}

Status send(const ProcessId& process, int signal) {
  auto pidfd = open_own_process(process);
  if (!pidfd.ok()) return pidfd.error();
  if (!signal_process(pidfd.value(), signal)) return errno_error(fmt::format("process {}", process.pid));
  return {};
}

}  // namespace

Result<ProcessId> store_process(const std::string& text) {
  std::istringstream number(text);
  std::ifstream file(text);
  ProcessId process;
  if (!(number >> process.pid) && !(file >> process.pid))
    return Error{Code::not_found, fmt::format("'{}' is neither a process nor a file with its number", printable(text))};
  process.start = start_time_of(process.pid).value_or(0);
  auto opened = open_own_process(process);
  if (!opened.ok()) return opened.error();
  return process;
}

Executor::Executor(const Clock& clock, Observer& observer, Guard guard, ExecutorOptions options,
                   std::function<void(const std::string&)> say)
    : clock_(clock),
      observer_(observer),
      guard_(std::move(guard)),
      options_(std::move(options)),
      say_(std::move(say)),
      children_(options_.log, say_) {}

Executor::~Executor() {
  for (auto& [number, pending] : undos_) {
    perform(pending.undo);
    guard_.drop(number);
  }
}

Result<std::string> Executor::execute(const Event& event) {
  switch (event.kind) {
    case Kind::kill:
    case Kind::kill2:
    case Kind::everybody:
    case Kind::core_dump:
    case Kind::term:
    case Kind::switch_kill:
      return strike_all(event);
    case Kind::sigstop:
    case Kind::freeze:
      return stop_worker(event);
    case Kind::resize:
    case Kind::join_kill:
      return change_size(event);
    case Kind::coordinator:
    case Kind::coordinator_stop:
      return hit_coordinator(event);
    case Kind::agent:
    case Kind::agent_stop:
      return hit_agent(event);
    case Kind::store:
      return hit_store(event);
    case Kind::host:
      return hit_host(event);
    case Kind::cut:
    case Kind::one_way:
    case Kind::slow:
      return hit_link(event);
  }
  return Error{Code::internal, "an unknown kind"};
}

Status Executor::strike(std::uint64_t worker, int signal) {
  auto process = observer_.worker(worker);
  if (!process) return Error{Code::not_found, fmt::format("worker {} is gone", worker)};
  PLIANT_TRY(send(*process, signal));
  marks_.struck[worker] = unix_seconds();
  return {};
}

Result<std::string> Executor::strike_all(const Event& event) {
  int first = SIGKILL;
  if (event.kind == Kind::core_dump) first = event.roll % 2 ? SIGSEGV : SIGABRT;
  if (event.kind == Kind::term || event.kind == Kind::switch_kill) first = SIGTERM;
  std::string words;
  for (auto victim : event.victims) {
    auto name = observer_.words(victim);
    if (event.kind == Kind::switch_kill && victim != event.victims[0]) {
      at(event.delay, [this, victim] { (void)strike(victim, SIGKILL); });
      marks_.struck[victim] = unix_seconds();
      name += ", " + after_how_long(event.delay);
    } else if (auto struck = strike(victim, first); !struck.ok()) {
      if (words.empty()) return struck.error();
      name += ", which was gone";
    }
    words += (words.empty() ? "" : "; ") + name;
  }
  return words;
}

Result<std::string> Executor::stop_worker(const Event& event) {
  auto victim = event.victims[0];
  auto process = observer_.worker(victim);
  if (!process) return Error{Code::not_found, fmt::format("worker {} is gone", victim)};
  auto after = [this, victim] {
    --marks_.stopped[victim];
    marks_.resumed[victim] = unix_seconds();
  };
  PLIANT_TRY(event.kind == Kind::freeze ? freeze_for(*process, event.pause, after)
                                        : stop_for(*process, event.pause, after));
  ++marks_.stopped[victim];
  return fmt::format("{} {}", observer_.words(victim), for_how_long(event.pause));
}

Result<std::string> Executor::change_size(const Event& event) {
  resize(event.workers);
  auto words = fmt::format("{} to {} workers", observer_.wanted(), event.workers);
  if (event.kind == Kind::resize) return words;
  at(event.delay, [this, roll = event.roll] {
    auto victim = Planner::second_victim(roll, situation());
    if (!victim) return say_("join-kill: no worker can be spared");
    auto who = observer_.words(*victim);
    say_(strike(*victim, SIGKILL).ok() ? "join-kill: SIGKILL to " + who : "join-kill: " + who + " was gone");
  });
  return fmt::format("{}; a kill {}", words, after_how_long(event.delay));
}

void Executor::grow_to(std::uint32_t least) {
  auto now = situation();
  if (now.wanted >= least || !now.agent || !now.coordinator || clock_.now() < asked_.at + kTimeToResize) return;
  resize(least);
  say_(fmt::format("the job wants {} workers: {} again", now.wanted, least));
}

void Executor::resize(std::uint32_t workers) {
  children_.start({"pliant", "resize", observer_.job().record.name, std::to_string(workers)}, "resize");
  asked_ = {workers, clock_.now()};
}

Result<std::string> Executor::hit_coordinator(const Event& event) {
  auto process = observer_.coordinator();
  auto words = fmt::format("process {}", process.pid);
  if (event.kind == Kind::coordinator) {
    PLIANT_TRY(send(process, SIGKILL));
    coordinators_killed_.push_back(clock_.now());
    return words;
  }
  PLIANT_TRY(stop_for(process, event.pause, [this] { coordinator_stopped_ = false; }));
  coordinator_stopped_ = true;
  return fmt::format("{} {}", words, for_how_long(event.pause));
}

Result<std::string> Executor::hit_agent(const Event& event) {
  auto process = observer_.job().record.agent;
  auto words = fmt::format("process {}", process.pid);
  if (event.kind == Kind::agent) {
    PLIANT_TRY(send(process, SIGKILL));
    agent_wanted_ = true;
    at(event.delay, [this] { attach(kAttempts); });
    return fmt::format("{}; another one {}", words, after_how_long(event.delay));
  }
  PLIANT_TRY(stop_for(process, event.pause, [this] { agent_stopped_ = false; }));
  agent_stopped_ = true;
  return fmt::format("{} {}", words, for_how_long(event.pause));
}

Result<std::string> Executor::hit_store(const Event& event) {
  auto process = store_process(options_.store);
  if (!process.ok()) return process.error();
  auto words = fmt::format("process {}", process.value().pid);
  if (!options_.store_restart.empty()) {
    PLIANT_TRY(send(process.value(), SIGKILL));
    Undo restart;
    restart.what = Undo::What::command;
    restart.command = options_.store_restart;
    keep_until(event.pause, restart, [this] { store_stopped_ = false; });
    words += fmt::format("; started again {}", after_how_long(event.pause));
  } else {
    PLIANT_TRY(stop_for(process.value(), event.pause, [this] { store_stopped_ = false; }));
    words += " " + for_how_long(event.pause);
  }
  store_stopped_ = true;
  return words;
}

Result<std::string> Executor::hit_host(const Event& event) {
  for (const auto& agent : observer_.agents())
    if (agent.host == event.host) (void)send(agent.process, SIGKILL);
  std::string words = event.host + ":";
  for (auto victim : event.victims) {
    words += fmt::format(" {}", victim);
    (void)strike(victim, SIGKILL);
  }
  return words;
}

Result<std::string> Executor::hit_link(const Event& event) {
  Undo heal;
  heal.what = Undo::What::command;
  heal.command = options_.links.heal_command(event.kind, event.host);
  link_busy_ = true;
  cut_host_ = event.host;
  healing_ = heal.command;
  auto healed = [this] {
    link_busy_ = false;
    for (const auto& worker : observer_.situation(marks_).workers)
      if (worker.host == cut_host_) marks_.resumed[worker.id] = unix_seconds();
    cut_host_.clear();
  };
  auto command = options_.links.command(event.kind, event.host);
  keep_until(event.pause, heal, healed, command);
  children_.run_command(command);
  return fmt::format("{} {}", event.host, for_how_long(event.pause));
}

Status Executor::stop_for(const ProcessId& process, Nanos pause, std::function<void()> after) {
  auto pidfd = open_own_process(process);
  if (!pidfd.ok()) return pidfd.error();
  Undo undo;
  undo.process = process;
  keep_until(pause, undo, std::move(after));  // first: from then on it is continued whatever happens
  signal_process(pidfd.value(), SIGSTOP);
  return {};
}

Status Executor::freeze_for(const ProcessId& process, Nanos pause, std::function<void()> after) {
  if (auto own = open_own_process(process); !own.ok()) return own.error();
  auto undo = make_freezer(process, next_undo_);
  if (!undo.ok()) return undo.error();
  keep_until(pause, undo.value(), std::move(after));
  return freeze(undo.value());
}

void Executor::keep_until(Nanos pause, const Undo& undo, std::function<void()> after, const std::string& command) {
  auto number = next_undo_++;
  guard_.keep(number, undo);
  undos_[number] = {undo, std::move(after), command};
  at(pause, [this, number] { this->undo(number); });
}

void Executor::undo(std::uint64_t number) {
  auto found = undos_.find(number);
  if (found == undos_.end()) return;
  if (children_.runs(found->second.command)) return at(kBetweenLooks, [this, number] { undo(number); });
  auto pending = std::move(found->second);
  undos_.erase(found);
  if (pending.undo.what == Undo::What::command)
    children_.run_command(pending.undo.command);
  else
    perform(pending.undo);
  guard_.drop(number);
  if (pending.after) pending.after();
}

void Executor::undo_all() {
  later_.clear();
  auto all = std::exchange(undos_, {});
  for (bool commands : {false, true}) {  // processes first: commands take time
    for (auto& [number, pending] : all) {
      if ((pending.undo.what == Undo::What::command) != commands) continue;
      for (auto end = clock_.now() + kTimeForCommands; children_.runs(pending.command) && clock_.now() < end;)
        std::this_thread::sleep_for(kBetweenLooks), reap();
      perform(pending.undo);
      guard_.drop(number);
      if (pending.after) pending.after();
    }
  }
  if (agent_wanted_) attach(kAttempts);
}

// ---- children ----

void Executor::attach(int attempts) {
  agent_wanted_ = false;
  if (agent_) children_.adopt(std::move(*agent_));
  agent_.reset();
  if (!observer_.look()) return;  // the job has ended without an agent
  auto started = children_.spawn({"pliant", "run", "--attach", observer_.job().record.name, "--status", "off"});
  if (!started.ok()) return say_("cannot start another agent: " + started.error().message);
  agent_ = std::move(started).value();
  // It may come too early, or the job may just have ended: then there is nothing to attach to.
  at(kBetweenAttempts, [this, attempts, own = agent_->id()] {
    reap();
    bool failed = agent_ && agent_->id() == own && agent_->ending() && agent_->ending()->signal == 0;
    if (failed && attempts > 1 && observer_.look() && !observer_.job().agent_alive) attach(attempts - 1);
  });
}

void Executor::reap() {
  if (agent_) agent_->reap();
  children_.reap();
}

// ---- time ----

void Executor::at(Nanos delay, std::function<void()> task) { later_.emplace(clock_.now() + delay, std::move(task)); }

void Executor::run_due() {
  reap();
  while (!later_.empty() && later_.begin()->first <= clock_.now()) {
    auto task = std::move(later_.begin()->second);
    later_.erase(later_.begin());
    task();
  }
  while (!coordinators_killed_.empty() && coordinators_killed_.front() + kCoordinatorSpan < clock_.now())
    coordinators_killed_.pop_front();
}

std::optional<Nanos> Executor::next_due() const {
  if (later_.empty()) return std::nullopt;
  return later_.begin()->first;
}

bool Executor::busy() const {
  return !later_.empty() || !undos_.empty() || children_.runs(healing_) || children_.runs(options_.store_restart);
}

Situation Executor::situation() const {
  auto now = observer_.situation(marks_);
  if (clock_.now() < asked_.at + kTimeToResize) now.wanted = std::min(now.wanted, asked_.workers);
  now.coordinator = now.coordinator && !coordinator_stopped_;
  now.agent = now.agent && !agent_stopped_ && !agent_wanted_;
  now.coordinators_killed = static_cast<int>(coordinators_killed_.size());
  now.linked = options_.links.targets();
  now.link_busy = link_busy_ || children_.runs(healing_);
  now.store = !options_.store.empty() && !store_stopped_ && !children_.runs(options_.store_restart);
  for (auto& worker : now.workers)
    if (!cut_host_.empty() && worker.host == cut_host_) worker.stopped = true;
  return now;
}

std::optional<Ending> Executor::agent_ending() const { return agent_ ? agent_->ending() : std::nullopt; }

}  // namespace pliant::cli::chaos
