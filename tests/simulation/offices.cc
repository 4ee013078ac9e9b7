#include "simulation/offices.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "simulation/agent_twin.h"
#include "simulation/coordinator_twin.h"
#include "simulation/world.h"

namespace pliant::sim {
namespace {

constexpr char kLauncher[] = "launcher";
constexpr char kAgent[] = "agent";

}  // namespace

Offices::Offices(World& world) : world_(world), server_(world.scheduler()) {}
Offices::~Offices() = default;

bool Offices::elects() const { return world_.options().hosts > 1 && world_.options().store; }
std::string Offices::home() const { return world_.options().hosts == 1 ? kAgent : kLauncher; }
std::string Offices::agent_of(const std::string& host) const { return host.empty() ? kAgent : "agent-" + host; }
std::string Offices::host_of(const std::string& place) const {
  return place == home() ? world_.host_name(0) : place.substr(std::string_view("agent-").size());
}
Nanos Offices::short_delay() { return world_.rng().between(microseconds(20), milliseconds(1)); }

void Offices::begin() {
  int hosts = world_.options().hosts;
  if (hosts == 1) return start_agent({kAgent, "", false, false, 0});
  for (int host = 0; host < hosts; ++host) {
    auto name = agent_of(world_.host_name(host));
    agents_[name] = nullptr;
    led_[name] = {{name, world_.host_name(host), true, false, 0}, Nanos(0)};
  }
  start_agent({kLauncher, world_.host_name(0), false, true, 0});
}

// ---- agents ----

void Offices::start_agent(AgentTwin::Setting setting) {
  world_.note("{} starts", setting.name);
  setting.pid = next_pid_++;
  auto& made = agents_[setting.name] = std::make_unique<AgentTwin>(*this, setting);
  made->begin();
}

void Offices::lead_to_hosts() {
  for (const auto& [name, led] : led_)
    if (!agents_.at(name) && world_.now() >= led.due) start_agent(led.setting);
}

bool Offices::lead_to_killed() {
  bool any = false;
  for (const auto& [name, led] : led_) {
    if (agents_.at(name) || !led.killed) continue;
    any = true;
    if (world_.now() >= led.due) start_agent(led.setting);
  }
  return any;
}

/// Its process is gone: what it has sent still comes.
void Offices::drop_agent(const std::string& name, bool killed) {
  auto setting = agents_.at(name)->setting();
  agents_.at(name).reset();
  for (auto& [number, wire] : wires_)
    if (wire.agent == name)
      world_.scheduler().after(wire.to.left(world_.now()) + short_delay(), [this, number = number] { close(number); });
  auto pause = world_.rng().between(milliseconds(50), milliseconds(1500));
  if (setting.part) {  // the launcher leads to it again
    led_.at(name).due = world_.now() + pause;
    led_.at(name).killed = killed;
    return;
  }
  world_.scheduler().after(pause, [this, setting] {
    if (!end_) start_agent(setting);
  });
}

void Offices::kill_some_agent() {
  std::vector<std::string> running;
  for (const auto& [name, agent] : agents_)
    if (agent) running.push_back(name);
  if (running.empty()) return;
  auto name = running[world_.rng().below(running.size())];
  world_.note("{} is killed", name);
  drop_agent(name, true);
}

void Offices::agent_ends(const std::string& name) {
  auto& agent = *agents_.at(name);
  world_.note("{} ends", name);
  if (!agent.setting().part) {
    end_ = JobEnd{agent.outcome(), agent.word().reason()};
    ended_at_ = world_.now();
    world_.note("the job is over: {} {}", name_of(end_->outcome), end_->reason);
  }
  drop_agent(std::string(name), false);
}

bool Offices::only_orphans_left() const {
  if (!end_ || world_.now() - ended_at_ < seconds(90)) return false;
  return std::ranges::none_of(world_.workers(), [this](const Process* process) {
    auto at = agents_.find(agent_of(process->host()));
    return at != agents_.end() && at->second;
  });
}

bool Offices::any_part_runs() const {
  return std::ranges::any_of(led_, [this](const auto& entry) { return agents_.at(entry.first) != nullptr; });
}

void Offices::end_parts(bool at_once) {
  for (auto& [name, led] : led_) {
    auto& agent = agents_.at(name);
    if (!agent) continue;
    if (!at_once) {
      agent->terminate();
      continue;
    }
    for (auto* process : world_.workers())
      if (process->host() == led.setting.host) world_.kill(*process);
    drop_agent(name, false);
  }
}

void Offices::stop_job() {
  if (auto& runs_it = agents_[home()]) runs_it->terminate();
}

void Offices::ended(const Process& process, bool good) {
  auto host = process.host();
  auto id = process.id();
  if (world_.options().hosts == 1)
    if (auto* twin = coordinator_at(home())) twin->on_process_end(id);
  world_.scheduler().after(world_.rng().between(microseconds(200), milliseconds(20)), [this, host, id, good] {
    auto at = agents_.find(agent_of(host));
    agent::Ending ending;
    if (!good) ending.signal = SIGKILL;
    if (at != agents_.end() && at->second) at->second->on_ended(id, ending);
  });
}

// ---- coordinators ----

CoordinatorTwin* Offices::coordinator_at(const std::string& place) const {
  auto at = coordinators_.find(place);
  return at == coordinators_.end() ? nullptr : at->second.get();
}

const membership::Coordinator* Offices::coordinator() const {
  auto stored = elects() ? server_.read("simulated/coordinator") : Result<membership::Entry>(membership::Entry{});
  auto place = stored.ok() && stored.value().revision ? stored.value().text.substr(4) : home();
  auto* twin = coordinator_at(place);
  return twin && twin->serves() ? &twin->coordinator() : nullptr;
}

void Offices::start_coordinator(const std::string& place) {
  coordinators_[place] = std::make_unique<CoordinatorTwin>(*this, place, place == home());
  world_.scheduler().after(world_.rng().between(milliseconds(5), milliseconds(150)),
                           [this, place, which = coordinators_[place].get()] {
                             if (coordinator_at(place) == which) which->begin();
                           });
}

/// Its directory is swept by a coordinator that ends when the job is over, if nobody runs the job just then.
bool Offices::job_is_gone(const std::string& place) const {
  auto at = agents_.find(home());
  return place == home() && (at == agents_.end() || !at->second);
}

/// The process is gone: connections close, and its parent knows. Never from within one of its own events.
void Offices::coordinator_ends(const std::string& place, HowItEnds how) {
  world_.scheduler().after(Nanos(0), [this, place, how, which = coordinator_at(place)] {
    if (!which || coordinator_at(place) != which) return;
    if (how == HowItEnds::over && job_is_gone(place)) {
      end_ = JobEnd{which->coordinator().verdict(), "nobody was there to hear it"};
      ended_at_ = world_.now();
      world_.note("nothing is left of the job, which {}", name_of(end_->outcome));
    }
    coordinators_.erase(place);
    std::vector<std::uint64_t> its;
    for (const auto& [number, wire] : wires_)
      if (wire.coordinator == place) its.push_back(number);
    for (auto number : its) {
      auto delay = wires_.at(number).from.left(world_.now()) + short_delay();
      world_.scheduler().after(delay, [this, number] { close(number); });
    }
    auto parent = agents_.find(place);
    if (parent != agents_.end() && parent->second) parent->second->on_coordinator_death();
  });
}

void Offices::kill_coordinator_at(const std::string& place) {
  if (!coordinator_at(place)) return;
  world_.note("the coordinator on {} is killed", place);
  coordinator_ends(place, HowItEnds::killed);
}

void Offices::kill_coordinator() {
  for (const auto& [place, twin] : coordinators_)
    if (twin->serves()) return kill_coordinator_at(place);
}

void Offices::resize(std::uint32_t workers) {
  for (const auto& [place, twin] : coordinators_) {
    if (!twin->serves() || &twin->coordinator() != coordinator()) continue;
    world_.note("resize to {}", workers);
    auto number = world_.next_number();
    wires_[number] = {place, nullptr, "", host_of(place)};
    twin->on_call(number, {1});
    twin->on_message(number, wire::Resize{workers});
    return close(number);
  }
}

// ---- connections ----

bool Offices::is_cut(const std::string& host, const std::string& place) const {
  return world_.cut(host, host_of(place)) || world_.cut(host_of(place), host);
}

std::uint64_t Offices::connect(TwinTransport& transport, const std::string& host) {
  auto place = elects() ? files_[agent_of(host)].place : home();
  auto* twin = coordinator_at(place);
  if (!twin || !twin->serves() || is_cut(host, place)) return 0;
  auto number = world_.next_number();
  wires_[number] = {place, &transport, "", host};
  auto& process = transport.process();
  twin->on_call(number, world_.options().hosts == 1 ? agent::Caller{process.pid()} : agent::Caller{0, process.id()});
  return number;
}

std::uint64_t Offices::connect_agent(AgentTwin& agent) {
  const auto& setting = agent.setting();
  auto place = elects() ? files_[setting.name].place : home();
  auto* twin = coordinator_at(place);
  if (!twin || !twin->serves() || is_cut(setting.host, place)) return 0;
  auto number = world_.next_number();
  wires_[number] = {place, nullptr, setting.name, setting.host};
  bool remote = world_.options().hosts > 1;
  twin->on_call(number, remote ? agent::Caller{0, UINT64_MAX} : agent::Caller{setting.pid});
  return number;
}

void Offices::tell(std::uint64_t number, wire::Message message) {
  auto at = wires_.find(number);
  if (at == wires_.end()) return;
  auto delay = at->second.to.delay(world_.now(), short_delay());
  world_.scheduler().after(delay, [this, number, message = std::move(message)] { arrive(number, message); });
}

void Offices::arrive(std::uint64_t number, const wire::Message& message) {
  auto at = wires_.find(number);
  if (at == wires_.end()) return;
  if (world_.cut(at->second.host, host_of(at->second.coordinator))) return close(number);
  auto* twin = coordinator_at(at->second.coordinator);
  if (twin && twin->serves()) twin->on_message(number, message);
}

void Offices::say(std::uint64_t number, const wire::Message& message) {
  auto at = wires_.find(number);
  if (at == wires_.end()) return;
  auto delay = at->second.from.delay(world_.now(), short_delay());
  auto* worker = at->second.worker;
  auto action = [this, number, message] { reach(number, message); };
  if (worker)
    worker->process().later(delay, action);
  else
    world_.scheduler().after(delay, action);
}

void Offices::reach(std::uint64_t number, const wire::Message& message) {
  auto at = wires_.find(number);
  if (at == wires_.end()) return;
  const auto wire = at->second;
  if (world_.cut(host_of(wire.coordinator), wire.host)) return close(number);
  if (wire.worker) return wire.worker->coordinator_says(number, message);
  auto agent = agents_.find(wire.agent);
  if (agent != agents_.end() && agent->second) agent->second->on_message(number, message);
}

void Offices::close(std::uint64_t number) {
  auto at = wires_.find(number);
  if (at == wires_.end()) return;
  const auto wire = at->second;
  wires_.erase(at);
  if (wire.worker) wire.worker->coordinator_closed(number);
  if (auto agent = agents_.find(wire.agent); agent != agents_.end() && agent->second) agent->second->on_closed(number);
  auto* twin = coordinator_at(wire.coordinator);
  if (twin && twin->serves()) twin->on_closed(number);
}

void Offices::close_after_last_word(std::uint64_t number) {
  auto at = wires_.find(number);
  if (at == wires_.end()) return;
  world_.scheduler().after(at->second.from.left(world_.now()) + Nanos(1), [this, number] { close(number); });
}

void Offices::hang_up(const TwinTransport& transport) {
  for (auto& [number, wire] : wires_) {
    if (wire.worker != &transport) continue;
    wire.worker = nullptr;
    world_.scheduler().after(wire.to.left(world_.now()) + short_delay(), [this, number = number] { close(number); });
  }
}

// ---- records ----

record::MemoryLog& Offices::log(const std::string& name) {
  auto& log = logs_[name];
  log.name = name;
  return log;
}

std::vector<record::MemoryLog> Offices::records() const {
  std::vector<record::MemoryLog> all;
  for (const auto& [name, log] : logs_) all.push_back(log);
  return all;
}

}  // namespace pliant::sim
