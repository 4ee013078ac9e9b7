// What goes wrong in a simulated run, and when.
#include <fmt/format.h>

#include <algorithm>

#include "membership/simulation.h"

namespace pliant::membership::sim {
namespace {

constexpr std::size_t kLargest = 7;

}  // namespace

void Simulation::fault() {
  if (healed_) return;
  const auto dice = static_cast<unsigned>(rng_.below(100));
  if (several_hosts_)
    fault_across_hosts(dice);
  else
    fault_on_one_host(dice);
  schedule(rng_.between(milliseconds(1), milliseconds(rng_.chance(50) ? 20 : 160)), {.kind = Kind::fault});
}

void Simulation::fault_on_one_host(unsigned dice) {
  if (dice < 40) {
    if (const auto id = random_member(); may_crash(id)) crash(id);
  } else {
    either_fault(dice);
  }
}

void Simulation::fault_across_hosts(unsigned dice) {
  if (dice < 15) {
    if (const auto id = random_member(); may_crash(id)) crash(id);
  } else if (dice < 28) {
    part(rng_.chance(30) ? random_member() : 0);
  } else if (dice < 40) {
    suspect_wrongly();
  } else {
    either_fault(dice);
  }
}

/// `dice` from 40 to 99.
void Simulation::either_fault(unsigned dice) {
  if (dice < 65) {
    add_newcomer();
  } else if (dice < 74) {
    if (auto* member = trainer(random_member())) member->ask_to_leave();
  } else if (dice < 84) {
    pause(random_member());
  } else if (dice < 92) {
    change_coordinators();
  } else {
    for (auto& [id, coordinator] : coordinators_) coordinator->remove(random_member());
  }
}

Id Simulation::random_member() {
  if (trainers_.empty()) return 0;
  return std::next(trainers_.begin(), static_cast<std::ptrdiff_t>(rng_.below(trainers_.size())))->first;
}

/// Mostly not when the job could not go on without it, or most runs would end early.
bool Simulation::may_crash(Id id) {
  if (trainer(id) == nullptr) return false;
  const bool state_left =
      std::ranges::any_of(trainers_, [&](const auto& known) { return known.first != id && !known.second->blank(); });
  return (state_left && can_go_on(id)) || rng_.below(200) == 0;
}

/// Its process ends, and its last words reach some of the others late and some not at all.
void Simulation::crash(Id id) {
  if (tracing()) note(id, "crashes");
  for (const auto& [other, trainer] : trainers_) {
    if (rng_.chance(40)) cut_off_[{id, other}] = now_ - rng_.between(Nanos(0), milliseconds(2));
    if (rng_.chance(40)) linger_[{id, other}] = rng_.between(milliseconds(1), milliseconds(15));
  }
  left(id);
}

void Simulation::left(Id id) {
  if (tracing()) note(id, "is gone");
  const auto* member = trainer(id);
  const bool comes_back = member != nullptr && !member->leaves() && rng_.chance(several_hosts_ ? 70 : 50);
  // The object may be the caller: it ends with the simulation, and hears nothing more.
  auto node = trainers_.extract(id);
  if (!node.empty()) gone_.push_back(std::move(node.mapped()));
  if (comes_back) schedule(rng_.between(milliseconds(10), milliseconds(120)), {.kind = Kind::newcomer});
  if (several_hosts_) return;
  for (const auto& [other, trainer] : trainers_)
    schedule(rng_.between(microseconds(50), milliseconds(rng_.chance(80) ? 3 : 25)),
             {.kind = Kind::lost, .to = other, .from = id});
}

void Simulation::strike(Id id) {
  if (healed_ || trainer(id) == nullptr) return;
  if (several_hosts_ && rng_.chance(60))
    part(id);
  else if (may_crash(id))
    crash(id);
}

void Simulation::part(Id alone) {
  partition_ = partition_ != 0 && rng_.chance(60) ? 0 : 1 + rng_.below(1'000'000);
  alone_ = alone;
  one_way_ = rng_.chance(35);
  sides_ = rng_.chance(20) ? 3 : 2;
  if (tracing()) note(0, partition_ == 0 ? "the network heals" : one_way_ ? "a link fails one way" : "a partition");
}

void Simulation::pause(Id id) {
  if (id == 0) return;
  if (tracing()) note(id, "is stopped");
  paused_[id] = now_ + rng_.between(milliseconds(1), milliseconds(several_hosts_ ? 600 : 80));
}

/// One other member; or all lower ones, which makes it a rival of the lowest.
void Simulation::suspect_wrongly() {
  const auto who = random_member(), whom = random_member();
  const bool all_lower = rng_.chance(50);
  if (who == 0) return;
  if (tracing()) note(who, all_lower ? "suspects all before it" : fmt::format("suspects {}", whom));
  const auto members = trainer(who)->member().view().members;
  for (const auto& member : members) {
    auto* suspicious = trainer(who);
    if (suspicious != nullptr && (all_lower ? member.id < who : member.id == whom)) suspicious->lost(member.id, false);
  }
}

void Simulation::add_newcomer() {
  if (trainers_.size() >= kLargest) return;
  const auto id = next_member_++;
  if (tracing()) note(id, "starts");
  trainers_[id] = std::make_unique<Trainer>(*this, id, View{}, options_.mutation);
  schedule(rng_.between(Nanos(0), milliseconds(50)), {.kind = Kind::tick, .to = id});
  if (several_hosts_) return;
  // A death that it hears of late is as good as one that it sees.
  for (const auto& dead : gone_)
    schedule(rng_.between(Nanos(0), milliseconds(5)), {.kind = Kind::lost, .to = id, .from = dead->id()});
}

void Simulation::add_coordinator() {
  const auto id = next_coordinator_++;
  coordinators_[id] = std::make_unique<PlanningCoordinator>(*this, id, kLargest);
  schedule(rng_.between(Nanos(0), milliseconds(50)), {.kind = Kind::tick, .to = id});
}

/// Loses one, or has two for a while.
void Simulation::change_coordinators() {
  if (coordinators_.size() < 2 && rng_.chance(40)) return add_coordinator();
  if (coordinators_.empty()) return;
  if (tracing()) note(coordinators_.begin()->first, "is gone");
  coordinators_.erase(coordinators_.begin());
  if (coordinators_.empty()) schedule(rng_.between(milliseconds(1), milliseconds(200)), {.kind = Kind::coordinator});
}

}  // namespace pliant::membership::sim
