// The agent's third part: what it does when there are other slots than before, and with those who are too many.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "apps/pliant/agent.h"

namespace pliant::cli {

SlotEvents Agent::slot_events() {
  SlotEvents events;
  events.on_slots = [this] { on_slots(); };
  events.on_price = [this](double per_hour) { news_.account().set_price(seconds(clock_.now()), per_hour); };
  events.on_notice = [this] {
    if (phase_ == Phase::running) on_signal(SIGTERM);
  };
  events.say = [this](const std::string& lines) { say(lines); };
  return events;
}

void Agent::on_slots() {
  auto start = record().plan.start;
  if (!record().is_part() && !news_.has_begun() && supply_.slots() < start)
    say(fmt::format("pliant: {} of {} workers can be had: the job waits (--min lets it begin with fewer)\n",
                    supply_.slots(), start));
  announce_slots();
  send_away_surplus();
}

void Agent::announce_slots() {
  if (keeper_ && keeper_->connected())
    keeper_->send(
        wire::AgentHello{record().job_name(), record().host.name, supply_.slots(), record().plan.supply.kind});
}

/// Those who only wait go first, then the youngest.
void Agent::send_away_surplus() {
  std::vector<Worker*> there;
  for (auto& worker : workers_.all())
    if (worker.process.running() && !worker.leave_by) there.push_back(&worker);
  std::ranges::sort(there, [this](const Worker* a, const Worker* b) {
    return std::pair(news_.in_view(a->id), b->id) < std::pair(news_.in_view(b->id), a->id);
  });
  for (auto surplus = there.size() > supply_.slots() ? there.size() - supply_.slots() : 0, i = std::size_t{0};
       i < surplus; ++i) {
    there[i]->process.signal_group(SIGTERM);
    there[i]->leave_by = clock_.now() + options_.grace;
    events_.note("taken", there[i]->id, "its slot is not there any more");
  }
}

void Agent::kill_overdue() {
  for (const auto& worker : workers_.all())
    if (worker.leave_by && clock_.now() >= *worker.leave_by && worker.process.running())
      worker.process.signal_group(SIGKILL);
}

}  // namespace pliant::cli
