#include "apps/pliant/chaos_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "base/hash.h"

namespace pliant::cli::chaos {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kShortestPause = 50ms;
constexpr Nanos kLongestJoin = 1500ms;    // between a resize and the kill of join-kill
constexpr Nanos kLongestSwitch = 100ms;   // between the two blows of switch-kill
constexpr Nanos kLongestOrphan = 1500ms;  // between the agent's death and the next one
constexpr Nanos kShortestCut = 200ms;
constexpr double kLongestWait = 4;  // in mean times

/// In [0, 1).
double fraction(std::uint64_t roll) { return static_cast<double>(roll >> 11) * 0x1p-53; }

Nanos part_of(Nanos whole, std::uint64_t roll) {
  return Nanos(static_cast<std::int64_t>(static_cast<double>(whole.count()) * fraction(roll)));
}

template <class T>
const T& pick(const std::vector<T>& from, std::uint64_t roll) {
  return from[roll % from.size()];
}

Error not_now(std::string why) { return {Code::refused, std::move(why)}; }

const Error kNobody = {Code::refused, "no worker can be spared"};

bool contains(const std::vector<std::uint64_t>& ids, std::uint64_t id) {
  return std::ranges::find(ids, id) != ids.end();
}

std::ptrdiff_t sound_beside(const Situation& now, const std::vector<std::uint64_t>& chosen) {
  return std::ranges::count_if(now.workers,
                               [&](const auto& worker) { return worker.sound() && !contains(chosen, worker.id); });
}

/// Members beyond those wanted are about to be left out: whichever those are, a sound one must remain.
std::ptrdiff_t reserve(const Situation& now) {
  auto staying = std::ranges::count_if(now.workers, [](const auto& worker) { return worker.member && !worker.struck; });
  return 1 + std::max<std::ptrdiff_t>(0, staying - static_cast<std::ptrdiff_t>(now.wanted));
}

}  // namespace

std::vector<std::uint64_t> expendable(const Situation& now, const std::vector<std::uint64_t>& chosen) {
  auto left = sound_beside(now, chosen) - reserve(now);
  std::vector<std::uint64_t> ids;
  for (const auto& worker : now.workers) {
    if (worker.struck || contains(chosen, worker.id)) continue;
    if (left >= (worker.sound() ? 1 : 0)) ids.push_back(worker.id);
  }
  return ids;
}

Planner::Planner(PlanOptions options) : options_(std::move(options)) {}

Draw Planner::draw(std::uint64_t number) const {
  auto own = combine(options_.seed, number);
  auto roll = [&](std::uint64_t which) { return combine(own, which); };
  Draw draw;
  draw.kind = pick(options_.kinds, roll(0));
  // Exponential: events are as likely to come close together as they are in nature.
  auto waits = std::min(-std::log(1 - fraction(roll(1))), kLongestWait);
  draw.wait = Nanos(static_cast<std::int64_t>(static_cast<double>(options_.every.count()) * waits));
  for (std::size_t i = 0; i < draw.rolls.size(); ++i) draw.rolls[i] = roll(2 + i);
  return draw;
}

Result<Event> Planner::aim(const Draw& draw, const Situation& now) const {
  switch (draw.kind) {
    case Kind::resize:
    case Kind::join_kill:
      return aim_at_size(draw, now);
    case Kind::coordinator:
    case Kind::coordinator_stop:
    case Kind::agent:
    case Kind::agent_stop:
    case Kind::store:
      return aim_at_service(draw, now);
    case Kind::host:
    case Kind::cut:
    case Kind::one_way:
    case Kind::slow:
      return aim_at_host(draw, now);
    default:
      return aim_at_workers(draw, now);
  }
}

Result<Event> Planner::aim_at_workers(const Draw& draw, const Situation& now) const {
  Event event{draw.kind};
  event.roll = draw.rolls[3];
  if (draw.kind == Kind::everybody) {
    for (const auto& worker : now.workers) event.victims.push_back(worker.id);
    if (event.victims.empty()) return not_now("no worker runs");
    if (!now.agent && !now.coordinator) return not_now("nothing of the job would be left");
    return event;
  }
  if (draw.kind == Kind::sigstop || draw.kind == Kind::freeze) {
    std::vector<std::uint64_t> running;
    for (const auto& worker : now.workers)
      if (!worker.struck && !worker.stopped) running.push_back(worker.id);
    if (running.empty()) return not_now("no worker runs that is not stopped already");
    event.victims = {pick(running, draw.rolls[0])};
    event.pause = pause_of(draw.rolls[1]);
    return event;
  }
  std::size_t count = draw.kind == Kind::kill2 || draw.kind == Kind::switch_kill ? 2 : 1;
  for (std::size_t i = 0; i < count; ++i) {
    auto possible = expendable(now, event.victims);
    if (possible.empty()) return kNobody;
    event.victims.push_back(pick(possible, draw.rolls[i]));
  }
  if (draw.kind == Kind::switch_kill) event.delay = part_of(kLongestSwitch, draw.rolls[2]);
  return event;
}

Result<Event> Planner::aim_at_size(const Draw& draw, const Situation& now) const {
  Event event{draw.kind};
  if (!now.agent || !now.coordinator) return not_now("the job has no agent or no coordinator");
  if (draw.kind == Kind::join_kill) {
    if (now.wanted >= options_.most) return not_now(fmt::format("the job has {} workers already", now.wanted));
    event.workers = now.wanted + 1;
    event.delay = part_of(kLongestJoin, draw.rolls[1]);
    event.roll = draw.rolls[3];
    return event;
  }
  std::vector<std::uint32_t> sizes;
  for (auto size = options_.least; size <= options_.most; ++size)
    if (size != now.wanted) sizes.push_back(size);
  if (sizes.empty()) return not_now(fmt::format("{} is the only number of workers allowed", now.wanted));
  event.workers = pick(sizes, draw.rolls[0]);
  return event;
}

Result<Event> Planner::aim_at_service(const Draw& draw, const Situation& now) const {
  Event event{draw.kind};
  event.pause = pause_of(draw.rolls[1]);
  event.roll = draw.rolls[3];
  if (draw.kind == Kind::store) {
    if (!now.store) return not_now("the store does not run");
    return event;
  }
  bool of_agent = draw.kind == Kind::agent || draw.kind == Kind::agent_stop;
  if (of_agent ? !now.agent : !now.coordinator)
    return not_now(of_agent ? "the job has no agent that runs" : "the job has no coordinator that runs");
  bool only_one = std::ranges::all_of(now.workers, [](const WorkerSeen& worker) { return worker.struck; }) &&
                  !(now.agent && now.coordinator);
  if (only_one && (draw.kind == Kind::agent || draw.kind == Kind::coordinator))
    return not_now("nothing of the job would be left");
  if (draw.kind == Kind::coordinator && now.coordinators_killed >= kCoordinatorsMost)
    return not_now("the agent would give up on a coordinator that dies so often");
  if (draw.kind == Kind::agent) event.delay = part_of(kLongestOrphan, draw.rolls[2]);
  return event;
}

Result<Event> Planner::aim_at_host(const Draw& draw, const Situation& now) const {
  Event event{draw.kind};
  if (draw.kind != Kind::host) {
    if (now.link_busy) return not_now("a link is cut or slow already");
    if (now.linked.empty()) return not_now("no host's link can be cut");
    event.host = pick(now.linked, draw.rolls[0]);
    event.pause = kShortestCut + part_of(options_.longest_pause, draw.rolls[1]);
    return event;
  }
  std::map<std::string, std::vector<std::uint64_t>> hosts;
  for (const auto& worker : now.workers)
    if (!worker.host.empty()) hosts[worker.host].push_back(worker.id);
  std::erase_if(hosts, [&](const auto& host) { return sound_beside(now, host.second) < reserve(now); });
  if (hosts.empty()) return not_now("no host can be spared");
  auto chosen = std::next(hosts.begin(), static_cast<std::ptrdiff_t>(draw.rolls[0] % hosts.size()));
  event.host = chosen->first;
  event.victims = chosen->second;
  return event;
}

/// Short ones and long ones are equally likely on a logarithmic scale.
Nanos Planner::pause_of(std::uint64_t roll) const {
  auto longest = std::max(options_.longest_pause, kShortestPause);
  auto ratio = static_cast<double>(longest.count()) / static_cast<double>(kShortestPause.count());
  return Nanos(
      static_cast<std::int64_t>(static_cast<double>(kShortestPause.count()) * std::pow(ratio, fraction(roll))));
}

std::optional<std::uint64_t> Planner::second_victim(std::uint64_t roll, const Situation& now) {
  auto possible = expendable(now);
  std::vector<std::uint64_t> newcomers;
  for (const auto& worker : now.workers)
    if (!worker.holds_state && contains(possible, worker.id)) newcomers.push_back(worker.id);
  if (!newcomers.empty() && fraction(mix64(roll)) < 0.5) return newcomers.back();
  if (possible.empty()) return std::nullopt;
  return pick(possible, roll);
}

}  // namespace pliant::cli::chaos
