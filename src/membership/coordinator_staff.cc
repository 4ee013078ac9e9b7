// The coordinator: workers that go, and the agents that start them.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "membership/coordinator.h"

namespace pliant::membership {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kSoon = 60s;  // a worker that fails later did not fail because of where it is
constexpr Nanos kFirstPause = 1s, kLongestPause = 60s;
constexpr int kForgiven = 1;             // failures without consequences for the slot
constexpr std::int32_t kForgotten = -1;  // no process: what is forgotten of a worker proves nothing to others

}  // namespace

// ---- workers go ----

/// Its process is gone, and nobody has still to say how.
bool Coordinator::has_ended(const Worker& worker) const {
  return worker.ended && (worker.counted || !worker.named || !agent_of(worker));
}

void Coordinator::on(Link link, const wire::Bye& bye) {
  auto id = worker_at(link);
  if (!id) return;
  workers_[*id].goodbye = true;
  workers_[*id].outcome = wire::outcome_in(bye.outcome);
}

void Coordinator::on(Link link, const wire::LoopEnded& ended) {
  auto id = worker_at(link);
  if (!id || has_note(workers_[*id])) return;
  workers_[*id].outcome = wire::outcome_in(ended.outcome);
}

Letters Coordinator::on_closed(Link link) {
  if (auto* agent = agent_at(link)) {
    agent->second.link = 0;
    // Nobody will say how they ended.
    for (auto& [id, worker] : workers_)
      if (worker.ended && worker.host == agent->first) count(worker, End::bad);
  } else if (auto id = worker_at(link)) {
    workers_[*id].link = 0;
  }
  return act();
}

/// What it left in writing, if it did, is newer than any message: one may have been lost with another coordinator, or
/// come late.
void Coordinator::read_note(Worker& worker, Outcome outcome, wire::LastView view) {
  if (outcome != Outcome::running || view.epoch) worker.outcome = outcome;
  worker.last_view = std::max(worker.last_view, view);
}

Letters Coordinator::on_gone(std::uint64_t id, Outcome outcome, wire::LastView view) {
  if (auto at = workers_.find(id); at != workers_.end() && !at->second.ended) {
    note_end(id, at->second);
    read_note(at->second, outcome, view);
    tell_of_death(id);
    // The agent will say how; but not if it never knew this one.
    const auto* agent = agent_of(at->second);
    if (!agent || (agent->complete && !at->second.named)) count(at->second, End::bad);
  }
  return act();
}

void Coordinator::on(Link link, const wire::Ended& ended) {
  const auto* agent = agent_at(link);
  if (!agent) return;
  auto& worker = file_of(ended.id);
  worker.host = agent->first;
  worker.words = ended.words;
  read_note(worker, wire::outcome_in(ended.outcome), ended.view);
  bool known = worker.ended;
  note_end(ended.id, worker);
  if (!known || ended.view.epoch) tell_of_death(ended.id);
  next_id_ = std::max(next_id_, ended.id + 1);
  if (!formed() && (ended.taken || lacks_slots(agent->first))) {  // somebody else, somewhere else, will begin the job
    workers_.erase(ended.id);
    former_.expect_no_more(ended.id);
    return send(link, wire::Parted{ended.id, 0});
  }
  count(worker, ended.taken ? End::taken : ended.good ? End::good : End::bad);
  send(link,
       wire::Parted{ended.id, static_cast<std::uint8_t>(has_parted(worker) && worker.outcome != Outcome::failed)});
}

/// Tells everybody that the job will not begin, if too few workers are left for the first view: before it nobody is
/// replaced. That may also be because fewer are wanted now, or because a host has been lost.
void Coordinator::refuse_to_begin() {
  if (formed() || said_) return;
  auto gone = std::ranges::find_if(workers_, [](const auto& entry) { return entry.second.counted; });
  if (gone == workers_.end()) return;
  // Whoever was in a view says that the job has begun, and this coordinator will hear of it.
  if (std::ranges::any_of(workers_, [](const auto& entry) { return has_note(entry.second); })) return;
  auto left = std::ranges::count_if(workers_, [](const auto& entry) { return !entry.second.ended; });
  auto to_come = std::max<std::ptrdiff_t>(std::ptrdiff_t{wanted_} - std::ssize(workers_), 0);
  if (left + to_come >= std::ptrdiff_t{needed_to_form()}) return;
  said_ = wire::Over{static_cast<std::uint8_t>(Outcome::failed),
                     fmt::format("worker {} ended before the job began ({})", gone->first, gone->second.words)};
  for (const auto& [id, waits] : workers_)
    if (!waits.ended) send(waits.link, wire::Refusal{said_->reason});
}

void Coordinator::count(Worker& worker, End end) {
  if (std::exchange(worker.counted, true) || !formed() || over()) return;
  if (end == End::taken || lacks_slots(worker.host) || worker.going == Going::surplus) return;
  bool in_order = worker.served && has_parted(worker) && worker.outcome != Outcome::failed;
  if (in_order && worker.going == Going::replaced) return cool_down(worker, true);
  if (in_order) {
    worker.left = true;
    return;
  }
  cool_down(worker, false);
  --restarts_;
}

/// Its place stays empty for a while, if there is reason to think that it is the place.
void Coordinator::cool_down(const Worker& worker, bool replaced) {
  auto at = agents_.find(worker.host);
  if (at == agents_.end()) return;
  auto& agent = at->second;
  if (replaced) return agent.cooling.push_back(now_ + kLongestPause);
  agent.failures = now_ - worker.since < kSoon ? agent.failures + 1 : 0;
  auto beyond = agent.failures - kForgiven;
  if (beyond > 0) agent.cooling.push_back(now_ + std::min(kLongestPause, kFirstPause * (1 << std::min(beyond - 1, 6))));
}

/// Whoever was replaced, or waits for nothing, is not needed any more.
void Coordinator::let_go() {
  for (auto& [id, worker] : workers_)
    if (worker.going != Going::no && !in_view(id) && is_there(worker) && !std::exchange(worker.told, true))
      send(worker.link, wire::Over{});
}

void Coordinator::dismiss_idle() {
  auto idle = waiting();
  auto missing = wanted_ > view_.members.size() ? wanted_ - view_.members.size() : 0;
  auto needed = missing + options_.spare;
  if (!formed() || plan_ || idle.size() <= needed) return idle_since_.reset();
  if (!idle_since_) idle_since_ = now_;
  if (!settled_ && now_ - *idle_since_ < options_.warm) return;
  for (std::size_t i = needed; i < idle.size(); ++i) workers_.at(idle[i]).going = Going::surplus;
}

void Coordinator::lower_wanted() {
  for (auto& [id, worker] : workers_) {
    if (!worker.left || in_view(id)) continue;
    worker.left = false;
    if (wanted_ > options_.least) --wanted_;
  }
}

// ---- what need not be known any more ----

/// What is known of a worker; of one that was forgotten, that it has ended.
Coordinator::Worker& Coordinator::file_of(std::uint64_t id) {
  auto [at, fresh] = workers_.try_emplace(id);
  auto& worker = at->second;
  if (fresh && former_.contains(id)) {
    worker.ended = worker.counted = true;
    worker.process = kForgotten;
  }
  return worker;
}

/// A plan that is out may still come true.
void Coordinator::note_end(std::uint64_t id, Worker& worker) {
  if (!std::exchange(worker.ended, true)) former_.expect(id, view_.epoch + 1);
}

bool Coordinator::may_be_forgotten(std::uint64_t id, const Worker& worker) const {
  bool done = worker.ended && worker.counted && !worker.left && !worker.link;
  bool named = in_view(id) || is_planned(id) || !former_.is_behind(id, view_.planned);
  return formed() && done && !named && worker.outcome != Outcome::finished && !was_last(id);
}

void Coordinator::forget() {
  std::erase_if(workers_, [&](const auto& entry) {
    bool may = may_be_forgotten(entry.first, entry.second);
    if (may) former_.add(entry.first, entry.second);
    return may;
  });
}

// ---- words of deaths ----

/// Workers on other hosts cannot see it. Those that wait to be taken in hear of it too: else they would call a member,
/// or somebody who was to come with them, for as long as they live. That something which only led to the worker has
/// ended proves nothing.
void Coordinator::tell_of_death(std::uint64_t id) {
  for (const auto& [other, worker] : workers_) {
    if (!worker.link) continue;
    // The dead may have been the only one to know that this view is in force, and its death proves nothing to whoever
    // is still in the view before.
    if (in_view(other) && worker.view < view_.epoch) send(worker.link, notice_of(view_));
    if (is_proof_for(other, id)) send(worker.link, wire::Dead{id, workers_.at(id).last_view});
  }
}

/// A worker that has just connected may have missed it.
void Coordinator::tell_deaths_to(std::uint64_t id) {
  for (const auto& [other, worker] : workers_)
    if (worker.ended && !worker.self.host.empty() && is_proof_for(id, other))
      send_to(id, wire::Dead{other, worker.last_view});
}

bool Coordinator::is_proof_for(std::uint64_t member, std::uint64_t id) const {
  const auto& worker = workers_.at(id);
  bool its_process = !worker.process || worker.process == worker.self.pid;
  return member != id && its_process && workers_.at(member).self.host != worker.self.host;
}

// ---- the agents ----

std::pair<const std::string, Coordinator::Agent>* Coordinator::agent_at(Link link) {
  auto at = std::ranges::find_if(agents_, [&](const auto& entry) { return link && entry.second.link == link; });
  return at == agents_.end() ? nullptr : &*at;
}

const Coordinator::Agent* Coordinator::agent_of(const Worker& worker) const {
  auto at = agents_.find(worker.host);
  return at == agents_.end() || !at->second.link ? nullptr : &at->second;
}

bool Coordinator::has_agents() const {
  return std::ranges::any_of(agents_, [](const auto& entry) { return entry.second.link != 0; });
}

/// Nobody can say anything about it; if it lives, it will come back by itself. Costs no restart.
bool Coordinator::lost_with_host(const Worker& worker) const {
  bool was_to_come = !worker.joined && !worker.named;
  return (worker.joined || was_to_come) && !worker.link && !worker.host.empty() && !agent_of(worker);
}

std::int64_t Coordinator::workers_on(const std::string& host) const {
  return std::ranges::count_if(workers_,
                               [&](const auto& known) { return known.second.host == host && !known.second.ended; });
}

/// Whoever has ended there had to go: those who are left need all the slots that there still are.
bool Coordinator::lacks_slots(const std::string& host) const {
  auto at = agents_.find(host);
  return at != agents_.end() && workers_on(host) >= std::int64_t{at->second.slots};
}

/// The first that came, of those who can start another worker; rather one without anybody who is to be replaced.
std::pair<const std::string, Coordinator::Agent>* Coordinator::agent_with_room() {
  std::pair<const std::string, Agent>* best = nullptr;
  std::tuple<bool, std::uint64_t> least;
  for (auto& entry : agents_) {
    const auto& host = entry.first;
    auto& agent = entry.second;
    std::erase_if(agent.cooling, [&](Nanos until) { return until <= now_; });
    auto slots = std::int64_t{agent.slots} - static_cast<std::int64_t>(agent.cooling.size());
    if (!agent.link || !agent.complete || workers_on(host) >= slots) continue;
    bool slow = std::ranges::any_of(workers_, [&](const auto& known) {
      return known.second.host == host && known.second.going == Going::replaced && !known.second.ended;
    });
    auto order = std::tuple(slow, agent.order);
    if (best && least <= order) continue;
    best = &entry;
    least = order;
  }
  return best;
}

void Coordinator::send_to_agents(const wire::Message& message) {
  for (const auto& [host, agent] : agents_) send(agent.link, message);
}

void Coordinator::on(Link link, const wire::AgentHello& hello) {
  if (hello.job != options_.job)
    return send(link, wire::Refusal{fmt::format("this is job '{}', not '{}'", options_.job, hello.job)});
  auto& agent = agents_[hello.host];
  auto is_its = [&](const Worker& worker) { return worker.host == hello.host; };
  agent.slots = hello.slots;
  agent.kind = hello.kind;
  if (link != agent.link) {
    agent.link = link;
    if (agent.order == 0) agent.order = agents_.size();
    agent.complete = agent.told_over = false;
    agent.knows.reset();
    for (auto& [id, worker] : workers_)
      if (is_its(worker)) worker.named = false;
    return;
  }
  if (std::exchange(agent.complete, true)) return;
  if (stopping()) send(link, wire::stop_of(stopping_));  // it was not there when somebody asked for that
  if (hello.host.empty() && hello.slots == 0) return;    // it only watches: workers of no known host are not its own
  for (auto& [id, worker] : workers_)
    if (is_its(worker) && worker.ended && !worker.named) count(worker, End::bad);
  // What was asked of the agent before, and did not happen, will not; who went with the host will not come back.
  std::erase_if(workers_, [&](const auto& entry) {
    const auto& worker = entry.second;
    return is_its(worker) && !worker.named && !worker.link && !worker.ended && !in_view(entry.first);
  });
}

void Coordinator::on(Link link, const wire::Stop& stop) {
  if (worker_at(link)) return;
  if (stop.host.empty()) stopping_ = std::max(stopping_, wire::stopping_in(stop));
  for (const auto& [host, agent] : agents_)
    if (stop.host.empty() || stop.host == host) send(agent.link, stop);
}

void Coordinator::on(Link link, const wire::Started& started) {
  const auto* agent = agent_at(link);
  if (!agent) return;
  auto& worker = file_of(started.id);
  worker.host = agent->first;
  worker.process = started.pid;
  worker.named = true;
  if (!worker.joined) worker.self.pid = started.pid;
  next_id_ = std::max(next_id_, started.id + 1);
}

void Coordinator::on(Link link, const wire::Progress& progress) {
  auto id = worker_at(link);
  if (!id) return;
  workers_[*id].trained_in = std::max(workers_[*id].trained_in, progress.view);
  // All members say the same; the first of them that is connected is heard.
  for (const auto& member : view_.members) {
    if (!workers_.at(member.id).link) continue;
    if (member.id == *id) send_to_agents(progress);
    return;
  }
}

void Coordinator::start_workers() {
  if (over() || needs_checkpoint() || is_hopeless() || stopping()) return;
  auto there = static_cast<std::int64_t>(workers_.size());  // before the first view nobody is replaced
  bool begins_again = lost();
  if (formed()) {
    // Whoever left in good order is not to be replaced: wait for the word on those who have ended.
    for (const auto& [id, worker] : workers_) {
      if (worker.ended && (!worker.counted || (worker.left && !begins_again))) return;
      bool gone = worker.ended || lost_with_host(worker) ||
                  (worker.goodbye && (begins_again || worker.outcome == Outcome::failed));
      bool behind = begins_again && in_view(id) && !worker.ready;  // in a view that is lost, and may not know it
      there -= worker.going == Going::replaced || behind || (gone && (begins_again || !in_view(id)));
    }
  }
  auto wanted = std::int64_t{wanted_} + (formed() ? options_.spare : 0) + std::min(restarts_, 0);
  for (auto missing = wanted - there; missing > 0; --missing) {
    auto* agent = agent_with_room();
    if (!agent) return;
    auto& worker = workers_[next_id_];
    worker.self.id = next_id_;
    worker.host = agent->first;
    worker.since = now_;
    send(agent->second.link, wire::Start{next_id_++});
  }
}

std::vector<wire::Headcount> Coordinator::headcount() const {
  std::map<std::string, wire::Headcount> kinds;
  for (const auto& [id, worker] : workers_) {
    if (worker.ended || lost_with_host(worker)) continue;
    auto agent = agents_.find(worker.host);
    auto kind = agent == agents_.end() ? std::string() : agent->second.kind;
    if (kinds.size() >= wire::kMaxKinds && !kinds.contains(kind)) kind = kinds.begin()->first;
    auto& count = kinds[kind];
    count.kind = kind;
    bool waits = worker.ready || worker.served;
    ++(in_view(id) ? count.training : waits ? count.waiting : count.starting);
  }
  std::vector<wire::Headcount> all;
  for (auto& [kind, count] : kinds) all.push_back(std::move(count));
  return all;
}

void Coordinator::tell_agents() {
  auto now = memory();
  News news{view_.hash(), now.wanted, now.spare, headcount()};
  for (auto& [host, agent] : agents_)
    if (agent.link && agent.complete && std::exchange(agent.knows, news) != news)
      send(agent.link, wire::JobState{notice_of(view_), now.wanted, now.spare, news.headcount});
}

}  // namespace pliant::membership
