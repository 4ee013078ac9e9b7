#include "simulation/world.h"

#include <algorithm>
#include <utility>

namespace pliant::sim {
namespace {

constexpr Nanos kSilence = seconds(1);
constexpr int kSlots = 8;  // in all

}  // namespace

World::World(const WorldOptions& options, Program program)
    : options_(options), program_(std::move(program)), scheduler_(options.seed), coordinator_host_(host_name(0)) {}

World::~World() {
  for (auto& [id, process] : processes_) process->kill();
  for (auto& process : ended_) process->kill();
  processes_.clear();
  ended_.clear();
}

void World::begin() {
  start_coordinator();
  for (int host = 0; host < options_.hosts; ++host) connect_agent(host_name(host));
}

bool World::over() const { return verdict_.has_value() && processes_.empty(); }

// ---- workers ----

std::vector<Process*> World::workers() {
  std::vector<Process*> all;
  for (auto& [id, process] : processes_) all.push_back(process.get());
  return all;
}

Process* World::worker(std::uint64_t id) {
  auto at = processes_.find(id);
  return at == processes_.end() ? nullptr : at->second.get();
}

bool World::lives(std::uint64_t id) const { return processes_.contains(id); }

std::uint64_t World::last_view_of(std::uint64_t id) const {
  for (const auto& process : ended_)
    if (process->id() == id) return process->last_view();
  return 0;
}

std::uint64_t World::newest_view() const {
  std::uint64_t newest = 0;
  for (const auto& [id, process] : processes_) newest = std::max(newest, process->agreed_view());
  for (const auto& process : ended_) newest = std::max(newest, process->agreed_view());
  return newest;
}

void World::spawn(std::uint64_t id, const std::string& host) {
  auto process = std::make_unique<Process>(*this, id, host, next_pid_++);
  auto& made = *process;
  processes_[id] = std::move(process);
  charges_[host][id] = {made.pid(), std::nullopt};
  note(made, "starts on {}", host);
  tell_from_agent(host, wire::Started{id, made.pid()});
  made.start(program_, [this, &made](bool good) { died(made, good); });
}

void World::kill(Process& process) {
  if (!lives(process.id())) return;
  note(process, "is killed");
  if (!verdict_) hit(Fault::kill, process);
  died(process, false);
}

void World::stop(Process& process) {
  note(process, "is stopped");
  process.stop();
  auto id = process.id();
  auto number = ++stops_[id];
  auto notice = [this, id, number](Nanos after, TwinTransport& transport) {
    transport.process().later(after, [this, id, number, watcher = transport.process().id()] {
      auto* stopped = worker(id);
      auto* watching = transport_of(watcher);
      if (stopped && watching && stopped->stopped() && stops_[id] == number) watching->stands_still(id);
    });
  };
  for (auto& [other, transport] : transports_) {
    if (other == id) continue;
    bool local = transport->process().host() == process.host();
    notice(local ? rng().between(milliseconds(100), milliseconds(400))
                 : kSilence + rng().between(Nanos(0), milliseconds(300)),
           *transport);
  }
}

void World::died(Process& process, bool good) {
  auto at = processes_.find(process.id());
  if (at == processes_.end()) return;
  auto owned = std::move(at->second);
  processes_.erase(at);
  auto* transport = transport_of(process.id());
  for (auto& [id, other] : transports_)
    if (transport && id != process.id()) other->peer_died(*transport);
  for (const auto& [number, connection] : connections_)
    if (connection.worker && connection.worker == transport) {
      auto delay = connections_.at(number).to.left(now()) + short_delay();
      scheduler_.after(delay, [this, number = number] { close_connection(number); });
    }
  if (transport) transports_.erase(process.id());
  auto host = process.host();
  auto id = process.id();
  auto view = process.last_view();
  auto outcome = static_cast<std::uint8_t>(process.outcome());
  scheduler_.after(rng().between(microseconds(200), milliseconds(20)), [this, host, id, good, view, outcome] {
    wire::Ended ended{id, static_cast<std::uint8_t>(good), good ? "exit status 0" : "killed", 0, view, outcome};
    charges_[host][id].ended = ended;
    tell_from_agent(host, ended);
  });
  agent_records_.lines.push_back(record::EventRecord{pliant::seconds(now()), "ended", id, good ? "well" : "killed"});
  auto& gone = *owned;
  ended_.push_back(std::move(owned));
  gone.kill();
}

TwinTransport* World::transport_of(std::uint64_t id) const {
  auto at = transports_.find(id);
  return at == transports_.end() ? nullptr : at->second;
}

void World::came(TwinTransport& transport) { transports_[transport.process().id()] = &transport; }

void World::gone(TwinTransport& transport) {
  auto id = transport.process().id();
  if (auto at = transports_.find(id); at != transports_.end() && at->second == &transport) {
    transports_.erase(at);  // its session has ended before its process: connections close
    for (auto& [other, peer] : transports_) peer->peer_died(transport);
  }
  std::vector<std::uint64_t> its;
  for (const auto& [number, connection] : connections_)
    if (connection.worker == &transport) its.push_back(number);
  for (auto number : its) {
    connections_.at(number).worker = nullptr;
    auto delay = connections_.at(number).to.left(now()) + short_delay();
    scheduler_.after(delay, [this, number] { close_connection(number); });
  }
}

std::shared_ptr<TwinView> World::view(std::uint64_t hash) {
  auto known = views_[hash].lock();
  if (known) return known;
  auto made = std::make_shared<TwinView>();
  views_[hash] = made;
  return made;
}

void World::published(Process& process, const Word& word) {
  publishes(process, word);
  if (!options_.trace) return;
  constexpr const char* kNames[] = {"submitted", "reduced", "copied", "row", "confirmed"};
  note(process, "publishes {} {} {}", kNames[static_cast<int>(word.kind)], word.name, word.use);
}

// ---- links between hosts ----

void World::cut_link(const std::string& from, const std::string& to) {
  if (from == to || !cuts_.insert({from, to}).second) return;
  note("the link from {} to {} is cut", from, to);
  auto number = ++cut_numbers_[{from, to}];
  scheduler_.after(kSilence + rng().between(milliseconds(0), milliseconds(200)), [this, from, to, number] {
    if (!cut(from, to) || cut_numbers_[{from, to}] != number) return;
    auto all = transports_;
    for (auto& [id, transport] : all)
      if (transport_of(id) == transport && transport->process().host() == to) transport->silence_from(from);
  });
}

void World::heal(const std::string& from, const std::string& to) {
  if (!cuts_.erase({from, to})) return;
  note("the link from {} to {} is whole again", from, to);
  auto all = transports_;
  for (auto& [id, transport] : all)
    if (transport_of(id) == transport && transport->process().host() == to) transport->healed_from(from);
}

void World::heal_all() {
  auto all = cuts_;
  for (const auto& [from, to] : all) heal(from, to);
}

// ---- the coordinator ----

void World::start_coordinator() {
  membership::CoordinatorOptions options;
  options.job = "simulated";
  options.seed = options_.seed;
  options.wanted = static_cast<std::uint32_t>(options_.workers);
  options.restarts = 1000;
  coordinator_ = std::make_unique<membership::Coordinator>(options, memory_);
  note("a coordinator begins");
  deliver(coordinator_->on_time(now()));
  keep_coordinator();
}

void World::keep_coordinator() {
  scheduler_.after(milliseconds(100), [this, which = coordinator_.get()] {
    if (coordinator_.get() != which) return;
    deliver(coordinator_->on_time(now()));
    keep_coordinator();
  });
}

void World::kill_coordinator() {
  if (!coordinator_) return;
  note("the coordinator is killed");
  coordinator_.reset();
  auto all = std::exchange(connections_, {});
  for (auto& [number, connection] : all) {
    if (connection.is_agent) agent_connections_.erase(connection.agent);
    if (!connection.worker) continue;
    auto* worker = connection.worker;
    auto id = worker->process().id();
    worker->process().later(short_delay(), [this, id, number = number] {
      if (auto* transport = transport_of(id)) transport->coordinator_closed(number);
    });
  }
  scheduler_.after(rng().between(milliseconds(20), milliseconds(400)), [this] {
    if (!coordinator_) start_coordinator();
  });
}

std::uint64_t World::connect_to_coordinator(TwinTransport& transport, const std::string& host) {
  if (!coordinator_ || cut(host, coordinator_host_) || cut(coordinator_host_, host)) return 0;
  auto number = next_number();
  connections_[number] = {&transport, "", false, host, {}, {}};
  return number;
}

void World::tell_coordinator(std::uint64_t number, wire::Message message) {
  auto at = connections_.find(number);
  if (at == connections_.end()) return;
  auto delay = at->second.to.delay(now(), short_delay());
  scheduler_.after(delay, [this, number, message = std::move(message)] {
    auto connection = connections_.find(number);
    if (!coordinator_ || connection == connections_.end()) return;
    if (cut(connection->second.host, coordinator_host_)) return close_connection(number);
    if (const auto* join = std::get_if<wire::Join>(&message))
      deliver(coordinator_->on_join(number, *join));
    else
      deliver(coordinator_->on_message(number, message));
  });
}

void World::close_connection(std::uint64_t number) {
  auto at = connections_.find(number);
  if (at == connections_.end()) return;
  auto connection = at->second;
  connections_.erase(at);
  if (connection.is_agent) agent_connections_.erase(connection.agent);
  if (connection.worker && transport_of(connection.worker->process().id()) == connection.worker)
    connection.worker->coordinator_closed(number);
  if (coordinator_) deliver(coordinator_->on_closed(number));
}

/// What a successor must know is kept before anything is said.
void World::deliver(const membership::Letters& letters) {
  memory_ = coordinator_->memory();
  for (const auto& letter : letters) {
    auto at = connections_.find(letter.to);
    if (at == connections_.end()) continue;
    auto& connection = at->second;
    auto delay = connection.from.delay(now(), short_delay());
    auto number = letter.to;
    auto message = letter.message;
    if (connection.is_agent) {
      scheduler_.after(delay, [this, host = connection.agent, message] { to_agent(host, message); });
      continue;
    }
    if (!connection.worker) continue;
    auto id = connection.worker->process().id();
    connection.worker->process().later(delay, [this, id, number, message] {
      auto* transport = transport_of(id);
      if (!transport || !connections_.contains(number)) return;
      if (cut(coordinator_host_, transport->process().host())) return close_connection(number);
      transport->coordinator_says(number, message);
    });
  }
}

void World::resize(std::uint32_t workers) {
  if (!coordinator_) return;
  note("resize to {}", workers);
  deliver(coordinator_->on_message(0, wire::Resize{workers}));
}

// ---- agents ----

void World::connect_agent(const std::string& host) {
  if (!agent_connections_.contains(host) && coordinator_ && !cut(host, coordinator_host_)) {
    auto number = next_number();
    connections_[number] = {nullptr, host, true, host, {}, {}};
    agent_connections_[host] = number;
    wire::AgentHello hello{"simulated", host, static_cast<std::uint32_t>(kSlots / options_.hosts)};
    tell_coordinator(number, hello);
    for (const auto& [id, charge] : charges_[host]) {
      if (charge.pid) tell_coordinator(number, wire::Started{id, charge.pid});
      if (charge.ended) tell_coordinator(number, *charge.ended);
    }
    tell_coordinator(number, hello);
  }
  scheduler_.after(milliseconds(50), [this, host] { connect_agent(host); });
}

void World::tell_from_agent(const std::string& host, const wire::Message& message) {
  auto at = agent_connections_.find(host);
  if (at != agent_connections_.end()) tell_coordinator(at->second, message);
}

void World::to_agent(const std::string& host, const wire::Message& message) {
  if (const auto* start = std::get_if<wire::Start>(&message)) {
    auto id = start->id;
    scheduler_.after(rng().between(milliseconds(1), milliseconds(150)), [this, host, id] {
      if (!verdict_) spawn(id, host);
    });
  } else if (const auto* parted = std::get_if<wire::Parted>(&message)) {
    charges_[host].erase(parted->id);
  } else if (const auto* over = std::get_if<wire::Over>(&message)) {
    if (!verdict_) note("the job is over: {} {}", name_of(wire::outcome_in(over->outcome)), over->reason);
    verdict_ = *over;
    // Those who do not go by themselves are ended.
    scheduler_.after(seconds(3), [this, host] {
      for (auto* process : workers())
        if (process->host() == host) kill(*process);
    });
  }
}

// ---- the store ----

Result<membership::Attempt> World::ask_store(const std::string& /*host*/, const std::string& key,
                                             const std::string& text) {
  if (store_silent_) return Error{Code::peer_lost, "the store does not answer"};
  auto [at, won] = store_.emplace(key, text);
  return membership::Attempt{won, {at->second, 1}};
}

// ---- records ----

record::MemoryLog& World::records(std::uint64_t worker) {
  auto& log = records_[worker];
  log.name = fmt::format("worker-{}", worker);
  return log;
}

std::vector<record::MemoryLog> World::all_records() const {
  std::vector<record::MemoryLog> all{agent_records_};
  for (const auto& [id, log] : records_) all.push_back(log);
  return all;
}

// ---- what happened ----

void World::trace(const std::string& who, const std::string& text) {
  auto time = now() - std::chrono::hours(1);
  trace_ += fmt::format("{:12.6f} {}{}{}\n", pliant::seconds(time), who, who.empty() ? "" : ": ", text);
}

void World::hit(Fault fault, Process& process) {
  if (options_.coverage) options_.coverage->hit(fault, process.watch().step());
}

void World::fail(const std::string& why) {
  if (failure_.empty()) failure_ = why;
  note("FAILURE: {}", why);
}

void World::worker_failed(Process& process, const std::string& why) {
  fail(fmt::format("worker {} ended with an error: {}", process.id(), why));
}

}  // namespace pliant::sim
