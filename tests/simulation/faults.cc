#include "simulation/faults.h"

#include <algorithm>
#include <array>
#include <utility>

namespace pliant::sim {

Faults::Faults(World& world, Checker& checker, Rng& dice, int count)
    : world_(world), checker_(checker), dice_(dice), hosts_(world.options().hosts), faults_left_(count) {
  world_.may_die = [this](const Process& process) { return may_die(process); };
  world_.reached = [this](Process& process) { fire(process); };
  world_.switches = [this](Process& process) { switches(process); };
  world_.dies_after_telling = [this](Process& process, const wire::ViewNotice& view) {
    return dies_after_telling(process, view);
  };
  world_.fences = [this](const Process& process) { fences(process); };
  world_.publishes = [this](Process& process, const Word& word) { publishes(process, word); };
}

void Faults::begin() {
  world_.scheduler().after(milliseconds(20), [this] { next_fault(); });
}

void Faults::lose_everybody(const Rng& dice, int times) {
  losses_dice_ = dice;
  Nanos at(0);
  for (int i = 0; i < times; ++i) {
    at += losses_dice_->between(milliseconds(20), milliseconds(1200));
    world_.scheduler().after(at, [this] { kill_everybody(); });
  }
}

void Faults::kill_everybody() {
  world_.note("fault: everybody");
  ++kinds_["everybody"];
  ++faults_;
  lost_everybody_ = true;
  auto& dice = *losses_dice_;
  auto longest = dice.chance(50) ? Nanos(0) : milliseconds(30);
  if (dice.chance(15)) kill_coordinator();
  if (dice.chance(15)) kill_agent();
  for (auto* process : world_.workers())
    world_.scheduler().after(dice.between(Nanos(0), longest), [this, id = process->id()] {
      if (auto* victim = world_.worker(id)) world_.kill(*victim);
    });
}

bool Faults::may_die(const Process& process) {
  if (spares_nobody_ && world_.checkpoints().newest()) {
    lost_everybody_ = true;  // perhaps
    return true;
  }
  auto holders = checker_.holders();
  holders.erase(process.id());
  std::erase_if(holders, [&](auto id) { return world_.worker(id)->notified() && !stop_asked_; });
  return !holders.empty();
}

Process* Faults::victim() {
  auto all = world_.workers();
  std::erase_if(all, [&](const Process* process) { return !may_die(*process); });
  return all.empty() ? nullptr : all[dice_.below(all.size())];
}

void Faults::kill(Process* process) {
  if (!process || !may_die(*process)) return;
  ++faults_;
  if (dice_.chance(50))
    world_.kill(*process);
  else
    process->doom(static_cast<int>(dice_.below(25)));
}

/// Somebody stays who was not asked to leave.
void Faults::notify(Process* process) {
  auto holders = checker_.holders();
  if (!process || std::ranges::none_of(holders, [&](auto id) {
        return id != process->id() && world_.lives(id) && !world_.worker(id)->notified();
      }))
    return;
  notified_ = true;
  world_.hit(Fault::term, *process);
  process->notify();
}

void Faults::pause(Process* process) { pause(process, dice_.chance(50) ? milliseconds(300) : milliseconds(4000)); }

void Faults::pause(Process* process, Nanos longest) {
  if (!process) return;
  ++faults_;
  world_.hit(Fault::sigstop, *process);
  world_.stop(*process);
  auto id = process->id();
  world_.scheduler().after(dice_.between(milliseconds(1), longest), [this, id] {
    if (auto* stopped = world_.worker(id)) stopped->go_on();
  });
}

void Faults::cut() {
  auto from = dice_.below(static_cast<std::uint64_t>(hosts_));
  auto to = (from + 1 + dice_.below(static_cast<std::uint64_t>(hosts_) - 1)) % static_cast<std::uint64_t>(hosts_);
  auto a = world_.host_name(static_cast<int>(from)), b = world_.host_name(static_cast<int>(to));
  ++faults_;
  for (auto* process : world_.workers())
    if (process->host() == a || process->host() == b) world_.hit(Fault::cut, *process);
  world_.cut_link(a, b);
  if (dice_.chance(60)) world_.cut_link(b, a);
  world_.scheduler().after(dice_.between(milliseconds(5), milliseconds(3000)), [this, a, b] {
    world_.heal(a, b);
    world_.heal(b, a);
  });
}

void Faults::hit_all(Fault fault) {
  for (auto* process : world_.workers()) world_.hit(fault, *process);
}

void Faults::resize_somehow() {
  hit_all(Fault::resize);
  world_.offices().resize(1 + static_cast<std::uint32_t>(dice_.below(6)));
}

void Faults::join_and_kill() {
  resize_somehow();
  world_.scheduler().after(dice_.between(milliseconds(0), milliseconds(200)), [this] { kill(victim()); });
}

void Faults::kill_coordinator() {
  hit_all(Fault::coordinator);
  world_.offices().kill_coordinator();
}

void Faults::kill_agent() {
  hit_all(Fault::agent);
  world_.offices().kill_some_agent();
}

void Faults::silence_store() {
  hit_all(Fault::store);
  world_.offices().server().set_silent(true);
  auto span = dice_.chance(50) ? milliseconds(800) : milliseconds(4000);
  world_.scheduler().after(dice_.between(milliseconds(1), span),
                           [this] { world_.offices().server().set_silent(false); });
}

Fault Faults::any_fault() {
  constexpr Fault kAll[] = {Fault::kill,        Fault::term,  Fault::sigstop, Fault::resize,
                            Fault::coordinator, Fault::agent, Fault::cut,     Fault::store};
  return kAll[dice_.below(std::size(kAll))];
}

/// Faults that hit the next worker whose step is in a certain state. By chance they would hardly meet those that last
/// for microseconds, or that only the loss of somebody else brings about.
void Faults::aim() {
  using enum StepState;
  constexpr StepState kDuring[] = {computing, exchanging, reducing, confirming, confirming, confirming, closed};
  constexpr StepState kAfter[] = {held, held, held, lacking, lacking, between};
  auto any = [&](const auto& list) { return list[dice_.below(std::size(list))]; };
  if (dice_.chance(30)) notify(victim());  // so that the step decides a change
  if (dice_.chance(30)) {
    resize_somehow();
    aimed_.push_back({Fault::sigstop, closed});
  }
  aimed_.push_back({dice_.chance(80) ? Fault::kill : any_fault(), any(kDuring)});
  aimed_.push_back({any_fault(), any(kAfter)});
}

/// The others have a step, and have perhaps gone on to take somebody in, while one of them has seen nothing of that
/// yet: then there is another loss.
void Faults::lag() {
  using enum StepState;
  if (dice_.chance(50)) aimed_.push_back({any_fault(), held});
  if (dice_.chance(40)) {
    constexpr StepState kStates[] = {exchanging, exchanging, exchanging, reducing, confirming};
    late_in_ = kStates[dice_.below(std::size(kStates))];
    return;
  }
  late_in_switch_ = true;
  loss_in_debt_ = dice_.chance(70);
  auto* coordinator = world_.offices().coordinator();
  if (!coordinator) return;
  hit_all(Fault::resize);
  world_.offices().resize(static_cast<std::uint32_t>(coordinator->view().size()) + 1);
}

/// `process` does not run for a moment, in which somebody else dies.
void Faults::hold_up(Process& process, Nanos until_loss) {
  if (!process.stopped()) pause(&process, milliseconds(8));
  lose_another(process.id(), until_loss);
}

void Faults::lose_another(std::uint64_t than, Nanos after) {
  world_.scheduler().after(after, [this, than] {
    auto all = world_.workers();
    std::erase_if(all, [&](const Process* process) { return process->id() == than || !may_die(*process); });
    if (!all.empty()) world_.kill(*all[dice_.below(all.size())]);
  });
}

/// `first` has ended a step that changes the view.
void Faults::switches(const Process& first) {
  auto* coordinator = world_.offices().coordinator();
  if (!late_in_switch_ || !coordinator || coordinator->memory().invited.empty()) return;
  using enum StepState;
  for (auto* process : world_.workers()) {
    auto state = process->watch().step();
    if (process->id() == first.id() || (state != exchanging && state != reducing && state != confirming)) continue;
    late_in_switch_ = false;
    return hold_up(*process, dice_.between(Nanos(0), microseconds(200)));
  }
}

/// All of a step is reduced but the last row is not out: whoever says that goes on when another has ended the view.
void Faults::publishes(Process& process, const Word& word) {
  using enum StepState;
  if (reductions_dice_) lose_after(process, word);
  if (late_in_ != exchanging || process.watch().step() != exchanging) return;
  if (word.kind == Word::Kind::row) has_row_out_.insert(process.id());
  if (word.kind != Word::Kind::reduced || !word.name.ends_with("second") || has_row_out_.contains(process.id())) return;
  auto all = world_.workers();
  if (all.size() < 3 || std::ranges::any_of(all, [](auto* other) { return other->watch().step() == computing; }))
    return;
  late_in_.reset();
  goes_on_later_ = process.id();
  hold_up(process, dice_.between(microseconds(20), microseconds(60)));  // the others reduce their parts meanwhile
}

void Faults::lose_after(const Process& process, const Word& word) {
  constexpr int kMost = 3;
  if (word.kind != Word::Kind::reduced || !word.name.starts_with("plain") || losses_after_reductions_ == kMost) return;
  if (!reductions_dice_->chance(2)) return;
  ++losses_after_reductions_;
  world_.scheduler().after(Nanos(0), [this, id = process.id()] {
    if (auto* victim = world_.worker(id); victim && may_die(*victim)) world_.kill(*victim);
  });
}

bool Faults::dies_after_telling(const Process& process, const wire::ViewNotice& view) {
  if (!views_dice_ || faults_left_ < 0 || !views_dice_->chance(4) || !may_die(process)) return false;
  auto holders = checker_.holders();
  bool any_other = std::ranges::any_of(view.members, [&](const wire::Member& member) {
    return member.id != process.id() && holders.contains(member.id) && !world_.worker(member.id)->notified();
  });
  if (!any_other) return false;
  world_.scheduler().after(Nanos(0), [this, id = process.id()] {
    if (auto* victim = world_.worker(id)) world_.kill(*victim);
  });
  return true;
}

void Faults::fences(const Process& first) {
  if (!goes_on_later_ || goes_on_later_ == first.id()) return;
  if (auto* held = world_.worker(*std::exchange(goes_on_later_, std::nullopt))) held->go_on();
}

void Faults::fire(Process& process) {
  auto state = process.watch().step();
  if (late_in_ == state && state != StepState::exchanging && world_.workers().size() > 2) {
    late_in_.reset();
    world_.scheduler().after(dice_.between(Nanos(0), microseconds(20)), [this, id = process.id()] {
      if (auto* late = world_.worker(id)) hold_up(*late, dice_.between(microseconds(50), milliseconds(5)));
    });
  }
  if (state == StepState::exchanging) has_row_out_.erase(process.id());
  if (process.watch().view() == step::ViewTable::owing && std::exchange(loss_in_debt_, false))
    lose_another(process.id(), dice_.between(Nanos(0), microseconds(500)));
  auto at = std::ranges::find(aimed_, state, &Aimed::state);
  if (at == aimed_.end()) return;
  auto fault = at->fault;
  aimed_.erase(at);
  auto delay = fault == Fault::sigstop ? dice_.between(Nanos(0), microseconds(300)) : Nanos(0);
  world_.scheduler().after(delay, [this, fault, id = process.id()] {
    if (auto* hit = world_.worker(id)) strike(fault, *hit);
  });
}

void Faults::strike(Fault fault, Process& process) {
  switch (fault) {
    case Fault::kill:
      if (may_die(process)) world_.kill(process);
      return;
    case Fault::term:
      return notify(&process);
    case Fault::sigstop:
      return pause(&process);
    case Fault::resize:
      return resize_somehow();
    case Fault::coordinator:
      return kill_coordinator();
    case Fault::agent:
      return kill_agent();
    case Fault::cut:
      return hosts_ > 1 ? cut() : kill(&process);
    case Fault::store:
      return world_.options().store ? silence_store() : notify(&process);
    case Fault::exception:
      return;
  }
}

void Faults::stop_everybody() {
  stop_asked_ = true;
  hit_all(Fault::term);
  if (dice_.chance(50)) return world_.offices().stop_job();
  for (auto* process : world_.workers()) process->notify();
}

void Faults::fault() {
  enum Kind {
    kill_one,
    kill_two,
    term,
    stop_job,
    resize,
    join_kill,
    switch_kill,
    stop,
    coordinator,
    agent,
    coordinator_and_agent,
    link,
    link_kill,
    store,
    aimed,
    aimed_again,
    aimed_once_more,
    lagging,
    lagging_again,
    lagging_once_more,
    lagging_at_last,
    kinds
  };
  static constexpr std::array<const char*, kinds> kNames = {"kill",
                                                            "kill2",
                                                            "term",
                                                            "stop",
                                                            "resize",
                                                            "join-kill",
                                                            "switch-kill",
                                                            "sigstop",
                                                            "coordinator",
                                                            "agent",
                                                            "coordinator-agent",
                                                            "cut",
                                                            "cut-kill",
                                                            "store",
                                                            "aimed",
                                                            "aimed",
                                                            "aimed",
                                                            "lag",
                                                            "lag",
                                                            "lag",
                                                            "lag"};
  auto kind = static_cast<Kind>(dice_.below(kinds));
  if (hosts_ == 1 && (kind == link || kind == link_kill || kind == store)) kind = kill_one;
  world_.note("fault: {}", kNames[kind]);
  ++kinds_[kNames[kind]];
  switch (kind) {
    case kill_two:
      kill(victim());
      [[fallthrough]];
    case kill_one:
      return kill(victim());
    case term:
      return notify(victim());
    case stop_job:
      return dice_.chance(80) ? kill(victim()) : stop_everybody();
    case resize:
      return resize_somehow();
    case join_kill:
      return join_and_kill();
    case switch_kill:
      notify(victim());
      world_.scheduler().after(dice_.between(milliseconds(0), milliseconds(12)), [this] { kill(victim()); });
      return;
    case stop:
      return pause(victim());
    case coordinator:
      return kill_coordinator();
    case coordinator_and_agent:
      kill_coordinator();
      [[fallthrough]];
    case agent:
      return kill_agent();
    case link:
      return cut();
    case link_kill:
      cut();
      world_.scheduler().after(dice_.between(milliseconds(0), milliseconds(1500)), [this] { kill(victim()); });
      return;
    case store:
      return silence_store();
    case aimed:
    case aimed_again:
    case aimed_once_more:
      return aim();
    case lagging:
    case lagging_again:
    case lagging_once_more:
    case lagging_at_last:
      return lag();
    case kinds:
      return;
  }
}

void Faults::next_fault() {
  if (faults_left_-- <= 0) return calm_down();
  world_.scheduler().after(dice_.between(milliseconds(0), milliseconds(150)), [this] {
    fault();
    next_fault();
  });
}

void Faults::part_hosts_later() {
  auto& scheduler = world_.scheduler();
  scheduler.after(seconds(7), [this] {
    world_.cut_link("host1", "host2");
    world_.cut_link("host2", "host1");
    world_.offices().resize(6);
  });
  scheduler.after(seconds(57), [this] { world_.heal_all(); });
}

/// From here on nothing new happens to the job: it must come to its end.
void Faults::calm_down() {
  world_.scheduler().after(seconds(4), [this] {
    world_.note("no more faults");
    aimed_.clear();
    late_in_.reset();
    late_in_switch_ = loss_in_debt_ = false;
    world_.heal_all();
    world_.offices().server().set_silent(false);
    for (auto* process : world_.workers())
      if (process->stopped()) process->go_on();
  });
}

}  // namespace pliant::sim
