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

}  // namespace

Offices::Offices(World& world) : world_(world), server_(world.scheduler()) {}
Offices::~Offices() = default;

bool Offices::elects() const { return world_.options().hosts > 1 && world_.options().store; }
std::string Offices::home() const { return world_.host_name(0); }
Nanos Offices::short_delay() { return world_.rng().between(microseconds(20), milliseconds(1)); }

void Offices::begin() {
  int hosts = world_.options().hosts;
  if (hosts == 1) return start_agent("agent", home(), false, false);
  start_agent(kLauncher, home(), false, true);
  for (int host = 0; host < hosts; ++host)
    start_agent("agent-" + world_.host_name(host), world_.host_name(host), true, false);
}

// ---- agents ----

void Offices::start_agent(const std::string& name, const std::string& host, bool part, bool launcher) {
  led_[name] = true;
  world_.note("{} starts", name);
  auto& made = agents_[name] =
      std::make_unique<AgentTwin>(*this, AgentTwin::Setting{name, host, part, launcher, next_pid_++});
  made->begin();
}

/// Its process is gone: what it has sent still comes.
void Offices::drop_agent(const std::string& name) {
  agents_.at(name).reset();
  for (auto& [number, wire] : wires_)
    if (wire.agent == name)
      world_.scheduler().after(wire.to.left(world_.now()) + short_delay(), [this, number = number] { close(number); });
}

void Offices::restart_agent(const std::string& name) {
  auto setting = agents_.at(name)->setting();
  drop_agent(name);
  world_.scheduler().after(world_.rng().between(milliseconds(50), milliseconds(1500)), [this, setting] {
    if (!end_) start_agent(setting.name, setting.host, setting.part, setting.launcher);
  });
}

void Offices::kill_some_agent() {
  std::vector<std::string> running;
  for (const auto& [name, agent] : agents_)
    if (agent) running.push_back(name);
  if (running.empty()) return;
  auto name = running[world_.rng().below(running.size())];
  world_.note("{} is killed", name);
  restart_agent(name);
}

/// Of several hosts one whose agent gives up is led to again, unless the job is over.
void Offices::agent_ends(std::string name) {
  auto& agent = *agents_.at(name);
  const auto setting = agent.setting();
  auto said = agent.word().outcome_or(Outcome::failed);
  world_.note("{} ends", name);
  if (setting.part) {
    bool goes_on = agents_.contains(kLauncher) && agents_.at(kLauncher) && !agents_.at(kLauncher)->word().is_over();
    if (goes_on) return restart_agent(name);
  } else {
    end_ = JobEnd{setting.launcher ? said : agent.verdict().outcome(), agent.word().reason()};
    world_.note("the job is over: {} {}", name_of(end_->outcome), end_->reason);
  }
  drop_agent(name);
  led_[name] = false;
}

bool Offices::all_parts_ended() const {
  return std::ranges::none_of(led_, [](const auto& entry) { return entry.first != kLauncher && entry.second; });
}

void Offices::end_parts(bool at_once) {
  for (auto& [name, agent] : agents_) {
    if (!agent || !agent->setting().part || !led_[name]) continue;
    if (!at_once) {
      agent->terminate();
      continue;
    }
    led_[name] = false;
    for (auto* process : world_.workers())
      if (process->host() == agent->setting().host) world_.kill(*process);
    drop_agent(name);
  }
}

void Offices::stop_job() {
  auto at = agents_.find(world_.options().hosts == 1 ? "agent" : kLauncher);
  if (at != agents_.end() && at->second) at->second->terminate();
}

void Offices::ended(const Process& process, bool good) {
  auto host = process.host();
  auto id = process.id();
  if (world_.options().hosts == 1)
    if (auto* twin = coordinator_at(host)) twin->on_process_end(id);
  world_.scheduler().after(world_.rng().between(microseconds(200), milliseconds(20)), [this, host, id, good] {
    auto name = world_.options().hosts == 1 ? std::string("agent") : "agent-" + host;
    auto at = agents_.find(name);
    agent::Ending ending;
    if (!good) ending.signal = SIGKILL;
    if (at != agents_.end() && at->second) at->second->on_ended(id, ending);
  });
}

// ---- coordinators ----

CoordinatorTwin* Offices::coordinator_at(const std::string& host) const {
  auto at = coordinators_.find(host);
  return at == coordinators_.end() ? nullptr : at->second.get();
}

const membership::Coordinator* Offices::coordinator() const {
  auto place = elects() ? server_.read("simulated/coordinator") : Result<membership::Entry>(membership::Entry{});
  auto host = elects() && place.ok() && place.value().revision ? place.value().text.substr(4) : home();
  auto* twin = coordinator_at(host);
  return twin && twin->serves() ? &twin->coordinator() : nullptr;
}

void Offices::start_coordinator(const std::string& host, const std::string& parent) {
  coordinators_[host] = std::make_unique<CoordinatorTwin>(*this, host, !agents_.at(parent)->setting().part);
  parents_[host] = parent;
  world_.scheduler().after(world_.rng().between(milliseconds(5), milliseconds(150)),
                           [this, host, which = coordinators_[host].get()] {
                             if (coordinator_at(host) == which) which->begin();
                           });
}

/// The process is gone: connections close, and its parent knows. Never from within one of its own events.
void Offices::coordinator_ends(const std::string& host, bool in_order) {
  world_.scheduler().after(Nanos(0), [this, host, in_order, which = coordinator_at(host)] {
    if (!which || coordinator_at(host) != which) return;
    if (in_order) files_[host].note.reset();
    coordinators_.erase(host);
    std::vector<std::uint64_t> its;
    for (const auto& [number, wire] : wires_)
      if (wire.coordinator == host) its.push_back(number);
    for (auto number : its) {
      auto delay = wires_.at(number).from.left(world_.now()) + short_delay();
      world_.scheduler().after(delay, [this, number] { close(number); });
    }
    auto parent = agents_.find(parents_[host]);
    if (parent != agents_.end() && parent->second) parent->second->on_coordinator_death(in_order);
  });
}

void Offices::kill_coordinator_at(const std::string& host) {
  if (!coordinator_at(host)) return;
  world_.note("the coordinator on {} is killed", host);
  coordinator_ends(host, false);
}

void Offices::kill_coordinator() {
  for (const auto& [host, twin] : coordinators_)
    if (twin->serves()) return kill_coordinator_at(host);
}

void Offices::resize(std::uint32_t workers) {
  for (const auto& [host, twin] : coordinators_) {
    if (!twin->serves() || &twin->coordinator() != coordinator()) continue;
    world_.note("resize to {}", workers);
    auto number = world_.next_number();
    wires_[number] = {host, nullptr, "", host};
    twin->on_call(number, {1});
    twin->on_message(number, wire::Resize{workers});
    return close(number);
  }
}

// ---- connections ----

std::uint64_t Offices::connect(TwinTransport& transport, const std::string& host) {
  auto place = elects() ? files_[host].place : home();
  auto* twin = coordinator_at(place);
  if (!twin || !twin->serves() || world_.cut(host, place) || world_.cut(place, host)) return 0;
  auto number = world_.next_number();
  wires_[number] = {place, &transport, "", host};
  auto& process = transport.process();
  twin->on_call(number, world_.options().hosts == 1 ? agent::Caller{process.pid()} : agent::Caller{0, process.id()});
  return number;
}

std::uint64_t Offices::connect_agent(AgentTwin& agent) {
  const auto& setting = agent.setting();
  auto place = elects() ? files_[setting.host].place : home();
  auto* twin = coordinator_at(place);
  if (!twin || !twin->serves() || world_.cut(setting.host, place) || world_.cut(place, setting.host)) return 0;
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
  if (world_.cut(at->second.host, at->second.coordinator)) return close(number);
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
  if (world_.cut(wire.coordinator, wire.host)) return close(number);
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
