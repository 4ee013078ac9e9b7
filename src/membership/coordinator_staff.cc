// The coordinator's second half: workers that end, and the agent that starts them.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "membership/coordinator.h"

namespace pliant::membership {

// ---- workers go ----

bool Coordinator::over() const {
  return formed() && std::all_of(view_.members.begin(), view_.members.end(), [&](const auto& member) {
           const auto& worker = workers_.at(member.id);
           return worker.ended || worker.goodbye;
         });
}

void Coordinator::on(Link link, const wire::Bye&) {
  if (auto id = worker_at(link)) workers_[*id].goodbye = true;
}

Letters Coordinator::on_closed(Link link) {
  if (link == agent_) {
    agent_ = 0;
    // Nobody will say how they ended.
    for (auto& [id, worker] : workers_)
      if (worker.ended) count(worker, false);
  } else if (auto id = worker_at(link)) {
    workers_[*id].link = 0;
  }
  return act();
}

Letters Coordinator::on_gone(std::uint64_t id) {
  if (auto at = workers_.find(id); at != workers_.end() && !at->second.ended) {
    at->second.ended = true;
    // The agent will say how; but not if it never knew this one.
    if (!agent_ || (agent_complete_ && !at->second.named)) count(at->second, false);
  }
  return act();
}

void Coordinator::on(Link link, const wire::Ended& ended) {
  if (link != agent_) return;
  auto& worker = workers_[ended.id];
  worker.ended = true;
  next_id_ = std::max(next_id_, ended.id + 1);
  count(worker, ended.good != 0);
  send(agent_, wire::Parted{ended.id, static_cast<std::uint8_t>(worker.goodbye)});
  if (formed() || !hopeless_.empty()) return;
  auto left = std::count_if(workers_.begin(), workers_.end(), [](const auto& entry) { return !entry.second.ended; });
  if (static_cast<std::uint32_t>(left) >= needed_to_form()) return;
  hopeless_ = fmt::format("worker {} ended before the job began ({})", ended.id, ended.words);
  for (const auto& [id, waits] : workers_)
    if (!waits.ended) send(waits.link, wire::Refusal{hopeless_});
}

void Coordinator::count(Worker& worker, bool good) {
  if (std::exchange(worker.counted, true) || !formed() || over()) return;
  if (worker.served && (good || worker.goodbye))
    worker.left = true;
  else
    --restarts_;
}

void Coordinator::lower_wanted() {
  for (auto& [id, worker] : workers_) {
    if (!worker.left || in_view(id)) continue;
    worker.left = false;
    if (wanted_ > options_.least) --wanted_;
  }
}

void Coordinator::tell_over() {
  if (!over()) return;
  for (auto& [id, worker] : workers_)
    if (!in_view(id) && worker.link && !worker.ended && !std::exchange(worker.told, true))
      send(worker.link, wire::Over{});
  bool good = std::any_of(view_.members.begin(), view_.members.end(),
                          [&](const auto& member) { return workers_.at(member.id).goodbye; });
  if (good && agent_ && !std::exchange(agent_told_over_, true)) send(agent_, wire::Over{});
}

// ---- the agent ----

void Coordinator::on(Link link, const wire::AgentHello& hello) {
  if (hello.job != options_.job)
    return send(link, wire::Refusal{fmt::format("this is job '{}', not '{}'", options_.job, hello.job)});
  if (link != agent_) {
    agent_ = link;
    agent_complete_ = agent_told_over_ = false;
    agent_knows_.reset();
    for (auto& [id, worker] : workers_) worker.named = false;
    return;
  }
  agent_complete_ = true;
  for (auto& [id, worker] : workers_)
    if (worker.ended && !worker.named) count(worker, false);
  // What was asked of the agent before, and did not happen, will not.
  std::erase_if(workers_, [&](const auto& entry) {
    const auto& worker = entry.second;
    return !worker.named && !worker.joined && !worker.ended && !in_view(entry.first);
  });
}

void Coordinator::on(Link link, const wire::Started& started) {
  if (link != agent_) return;
  auto& worker = workers_[started.id];
  worker.named = true;
  if (!worker.joined) worker.self.pid = started.pid;
  next_id_ = std::max(next_id_, started.id + 1);
}

void Coordinator::on(Link link, const wire::Progress& progress) {
  auto id = worker_at(link);
  if (!id) return;
  // All members say the same; the first of them that is connected is heard.
  for (const auto& member : view_.members) {
    if (!workers_.at(member.id).link) continue;
    if (member.id == *id) send(agent_, progress);
    return;
  }
}

void Coordinator::on(Link link, const wire::Complaint& complaint) {
  if (auto id = worker_at(link))
    send(agent_, wire::Complaint{complaint.id, fmt::format("worker {} said: {}", *id, complaint.reason)});
}

void Coordinator::start_workers() {
  if (!agent_ || !agent_complete_ || over() || !hopeless_.empty()) return;
  auto there = static_cast<std::int64_t>(workers_.size());  // before the first view nobody is replaced
  if (formed()) {
    // Whoever left in good order is not to be replaced: wait for the word on those who have ended.
    for (const auto& [id, worker] : workers_) {
      if (worker.ended && (!worker.counted || worker.left)) return;
      there -= worker.ended && !in_view(id);
    }
  }
  for (auto missing = std::int64_t{wanted_} + std::min(restarts_, 0) - there; missing > 0; --missing) {
    workers_[next_id_].self.id = next_id_;
    send(agent_, wire::Start{next_id_++});
  }
}

void Coordinator::tell_agent() {
  if (!agent_ || !agent_complete_) return;
  auto now = memory();
  auto news = std::tuple(view_.hash(), now.wanted, now.spare);
  if (std::exchange(agent_knows_, news) == news) return;
  send(agent_, wire::JobState{notice_of(view_), now.wanted, now.spare});
}

}  // namespace pliant::membership
