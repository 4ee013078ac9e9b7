#include "simulation/world.h"

#include <algorithm>
#include <utility>

namespace pliant::sim {
namespace {

constexpr Nanos kSilence = seconds(1);

}  // namespace

World::World(const WorldOptions& options, Program program)
    : options_(options), program_(std::move(program)), scheduler_(options.seed) {}

World::~World() {
  for (auto& [id, process] : processes_) process->kill();
  for (auto& process : ended_) process->kill();
  processes_.clear();
  ended_.clear();
}

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

wire::LastView World::last_view_of(std::uint64_t id) const {
  for (const auto& process : ended_)
    if (process->id() == id) return process->last_view();
  return {};
}

std::uint64_t World::newest_view() const {
  std::uint64_t newest = 0;
  for (const auto& [id, process] : processes_) newest = std::max(newest, process->agreed_view());
  for (const auto& process : ended_) newest = std::max(newest, process->agreed_view());
  return newest;
}

int World::spawn(std::uint64_t id, const std::string& host) {
  auto process = std::make_unique<Process>(*this, id, host, next_pid_++);
  auto& made = *process;
  processes_[id] = std::move(process);
  note(made, "starts on {}", host);
  auto delay = rng().between(milliseconds(1), milliseconds(150));
  made.start(program_, delay, [this, &made](bool good) { died(made, good); });
  return made.pid();
}

session::WorkerNote World::note_of(std::uint64_t id) const {
  for (const auto& process : ended_)
    if (process->id() == id) return process->note();
  return {};
}

void World::kill(Process& process) {
  if (!lives(process.id())) return;
  note(process, "is killed");
  if (!offices_.over_said()) hit(Fault::kill, process);
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
  if (transport) offices_.hang_up(*transport);
  if (transport) transports_.erase(process.id());
  offices_.ended(process, good);
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
  offices_.hang_up(transport);
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

// ---- records ----

record::MemoryLog& World::records(std::uint64_t worker) {
  auto& log = records_[worker];
  log.name = fmt::format("worker-{}", worker);
  return log;
}

std::vector<record::MemoryLog> World::all_records() const {
  auto all = offices_.records();
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
  // Nobody was left to tell it that the job is over, because the agent of its host had been killed.
  if (offices_.end() && why.starts_with("the job's coordinator is gone")) return;
  // Nor is it an error that a job whose first workers were killed does not begin.
  if (why.find("ended before the job began") != std::string::npos) return;
  // A program cannot go back to a loop that it has left; another worker takes its place.
  if (options_.checkpoint_every && why.find("this worker is in loop") != std::string::npos) return;
  fail(fmt::format("worker {} ended with an error: {}", process.id(), why));
}

}  // namespace pliant::sim
