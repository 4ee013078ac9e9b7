#include "membership/simulation.h"

#include <fmt/format.h>

#include <algorithm>

namespace pliant::membership::sim {
namespace {

constexpr Nanos kTick = milliseconds(50);
constexpr Nanos kFaultsEnd[] = {milliseconds(4000), milliseconds(10000)};  // on one host; across hosts
constexpr Nanos kTimeToHeal = milliseconds(10000);
constexpr std::size_t kMoreSteps = 20;
constexpr std::size_t kLargest = 7;

}  // namespace

Outcome simulate(const Options& options) { return Simulation(options).run(); }

Simulation::Simulation(const Options& options)
    : options_(options), several_hosts_(options.seed % 2 == 1 || options.store), rng_(options.seed) {
  View first{1, 1, 42, {}};
  const auto size = 2 + rng_.below(kLargest - 1);
  for (std::size_t i = 0; i < size; ++i, ++next_member_)
    first.members.push_back({next_member_, static_cast<std::int32_t>(next_member_), ""});
  for (const auto& member : first.members)
    trainers_[member.id] = std::make_unique<Trainer>(*this, member.id, first, options.mutation);
  if (several_hosts_) loss_ = static_cast<unsigned>(rng_.below(8)), doubles_ = loss_ / 2, late_ = 6;
}

Outcome Simulation::run() {
  for (auto& [id, trainer] : trainers_) {
    trainer->start();
    schedule(rng_.between(Nanos(0), kTick), {.kind = Kind::tick, .to = id});
  }
  add_coordinator();
  schedule(rng_.between(milliseconds(5), milliseconds(50)), {.kind = Kind::fault});
  schedule(kFaultsEnd[several_hosts_], {.kind = Kind::heal});
  while (!queue_.empty() && checker_.failure().empty() && !lost_ && now_ < kFaultsEnd[several_hosts_] + kTimeToHeal &&
         !done()) {
    auto event = queue_.top();
    queue_.pop();
    handle(event);
  }
  if (!done() && !lost_ && can_go_on()) checker_.fail(0, "no progress after the faults ended: " + situation());
  for (const auto& [id, trainer] : trainers_) checker_.recount(id, trainer->log());
  return {checker_.failure(), trace_, events_, digest_, checker_.stable_steps(), checker_.newest_epoch(), done()};
}

// ---- events ----

void Simulation::schedule(Nanos delay, Event event) {
  event.at = now_ + delay;
  event.order = ++order_;
  queue_.push(std::move(event));
}

void Simulation::handle(const Event& event) {
  now_ = event.at;
  if (auto paused = paused_.find(event.to); paused != paused_.end() && event.to != 0) {
    if (paused->second > now_) return schedule(paused->second - now_, event);
    paused_.erase(paused);
  }
  ++events_;
  digest_ = combine(combine(digest_, static_cast<std::uint64_t>(now_.count())), event.to * 16 + event.from);
  auto* member = trainer(event.to);
  switch (event.kind) {
    case Kind::deliver:
      return deliver(event);
    case Kind::wake:
      return member != nullptr ? member->wake(event.number) : void();
    case Kind::tick:
      return tick(event.to);
    case Kind::fault:
      return fault();
    case Kind::strike:
      return strike(event.from);
    case Kind::newcomer:
      return add_newcomer();
    case Kind::coordinator:
      return add_coordinator();
    case Kind::heal:
      return heal();
    case Kind::lost:
      if (member == nullptr) return;
      if (tracing()) note(event.to, fmt::format("is told that {} is dead", event.from));
      return member->lost(event.from, true);
    case Kind::ask:
      return decide(event.from, *event.view);
    case Kind::decided:
      if (member == nullptr) return;
      if (tracing()) note(event.to, "<- store: " + text_of(*event.view));
      return member->decided(*event.view);
  }
}

// ---- the store ----

/// It may be slow, and what it is asked or says may be lost; but what it has taken stays.
void Simulation::ask_store(Id id, const View& view) {
  if (tracing()) note(id, "asks the store for " + text_of(view));
  if (rng_.chance(3 * loss_)) return;
  schedule(delay_of_link(), {.kind = Kind::ask, .from = id, .view = std::make_shared<const View>(view)});
}

void Simulation::decide(Id id, const View& view) {
  auto& taken = store_.try_emplace(view.epoch, view).first->second;
  if (options_.mutation == Mutation::fickle_store) taken = view;
  if (rng_.chance(3 * loss_)) return;
  schedule(delay_of_link(), {.kind = Kind::decided, .to = id, .view = std::make_shared<const View>(taken)});
}

void Simulation::deliver(const Event& event) {
  const auto cut_off = cut_off_.find({event.from, event.to});
  if (cut_off != cut_off_.end() && event.sent > cut_off->second) return;
  if (cut(event.from, event.to)) return;
  if (const auto linger = linger_.find({event.from, event.to}); linger != linger_.end() && event.number == 0) {
    auto later = event;
    later.number = 1;
    return schedule(linger->second, later);
  }
  const auto coordinator = coordinators_.find(event.to);
  auto* member = trainer(event.to);
  if (member == nullptr && coordinator == coordinators_.end()) return;
  if (tracing() && !std::holds_alternative<Heartbeat>(*event.packet))
    note(event.to, fmt::format("<- {}: {}", event.from, text_of(*event.packet)));
  if (member != nullptr)
    member->receive(event.from, *event.packet);
  else
    coordinator->second->receive(event.from, *event.packet);
}

void Simulation::tick(Id id) {
  if (auto* member = trainer(id)) {
    member->tick();
  } else if (auto coordinator = coordinators_.find(id); coordinator != coordinators_.end()) {
    coordinator->second->tick();
  } else {
    return;
  }
  schedule(kTick, {.kind = Kind::tick, .to = id});
}

void Simulation::wake(Id id, Nanos delay, std::uint64_t alarm) {
  schedule(delay, {.kind = Kind::wake, .to = id, .number = alarm});
}

void Simulation::note(Id id, const std::string& text) {
  trace_ += fmt::format("{:10.3f} ms  {:4} {}\n", static_cast<double>(now_.count()) / 1e6, id, text);
}

// ---- the network ----

std::vector<Id> Simulation::coordinators() const {
  std::vector<Id> ids;
  for (const auto& [id, coordinator] : coordinators_) ids.push_back(id);
  return ids;
}

bool Simulation::outside(Id id) const {
  const auto at = trainers_.find(id);
  return at != trainers_.end() && at->second->phase() == Trainer::Phase::outside;
}

/// A partition puts everybody on a side by chance, or one member alone. One-way: nothing gets out of side 0.
bool Simulation::cut(Id from, Id to) const {
  if (partition_ == 0) return false;
  const auto a = side_of(from), b = side_of(to);
  return a != b && (!one_way_ || a == 0);
}

std::uint64_t Simulation::side_of(Id id) const {
  return alone_ != 0 ? (id == alone_) == (partition_ % 2 == 0) : combine(partition_, id) % sides_;
}

Nanos Simulation::delay_of_link() {
  if (!several_hosts_)
    return rng_.chance(5) ? rng_.between(milliseconds(1), milliseconds(25)) : Nanos(rng_.below(900'000));
  if (rng_.chance(late_)) return rng_.between(milliseconds(20), milliseconds(400));
  return rng_.between(microseconds(100), milliseconds(4));
}

void Simulation::send(Id from, Id to, Packet packet) {
  // The moments in which views are agreed on are short: faults that hit just then are not left to chance alone.
  if (!healed_ && std::holds_alternative<Agreement>(*packet) && rng_.chance(several_hosts_ ? 4 : 2))
    schedule(rng_.between(Nanos(0), milliseconds(3)), {.kind = Kind::strike, .from = from});
  if (cut(from, to) || rng_.chance(loss_)) return;
  const int copies = rng_.chance(doubles_) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    auto at = now_ + delay_of_link();
    if (!several_hosts_) {
      auto& last = last_on_link_[{from, to}];
      at = last = std::max(at, last + Nanos(1));
    }
    schedule(at - now_, {.kind = Kind::deliver, .to = to, .from = from, .sent = now_, .packet = packet});
  }
}

// ---- the end ----

void Simulation::heal() {
  if (tracing()) note(0, "faults end");
  healed_ = true;
  partition_ = 0;
  loss_ = doubles_ = late_ = 0;
  if (coordinators_.empty()) add_coordinator();
  goal_ = checker_.stable_steps();
  for (const auto& [id, trainer] : trainers_) goal_ = std::max(goal_, trainer->log().size());
  goal_ += kMoreSteps;
}

/// Everybody whose process runs is in one view, and has made the steps.
bool Simulation::done() {
  if (!healed_ || trainers_.empty()) return false;
  const auto& view = trainers_.begin()->second->view();
  return std::ranges::all_of(trainers_, [&](const auto& known) {
    const auto& [id, trainer] = known;
    return trainer->log().size() >= goal_ && trainer->view().epoch == view.epoch && trainer->view().term == view.term;
  });
}

bool Simulation::quorum_lives(const View& view, Id without) const {
  const auto alive = [&](Id id) { return id != without && trainers_.contains(id); };
  std::vector<Id> votes;
  for (const auto& member : view.members)
    if (view.votes(member.id)) votes.push_back(member.id);
  const auto left = static_cast<std::size_t>(std::ranges::count_if(votes, alive));
  return 2 * left > votes.size() || (2 * left == votes.size() && alive(*std::ranges::min_element(votes)));
}

/// On one host anybody will do who has the state; with a store, anybody who votes in the newest view that there is.
/// Across hosts a majority must live of the votes of the newest view that anybody alive knows to be in force, and of
/// what may have followed it.
bool Simulation::can_go_on(Id without) const {
  if (options_.store) return can_go_on_by_store(without);
  const Member* newest = nullptr;
  for (const auto& [id, trainer] : trainers_) {
    const auto& member = trainer->member();
    if (id == without || member.view().rank_of(id) < 0) continue;
    if (newest == nullptr || member.view().epoch > newest->view().epoch) newest = &member;
  }
  if (newest == nullptr) return false;
  if (!several_hosts_)
    return std::ranges::any_of(trainers_, [&](const auto& known) {
      return known.first != without && newest->view().rank_of(known.first) >= 0 && !known.second->blank();
    });
  return quorum_lives(newest->view(), without) && std::ranges::all_of(trainers_, [&](const auto& known) {
           const auto& stored = known.second->member().stored();
           return !stored || stored->epoch != newest->view().epoch + 1 || quorum_lives(*stored, without);
         });
}

bool Simulation::can_go_on_by_store(Id without) const {
  View newest;
  for (const auto& [epoch, view] : store_) newest = view;
  for (const auto& [id, trainer] : trainers_)
    if (trainer->member().view().epoch >= newest.epoch) newest = trainer->member().view();
  return std::ranges::any_of(trainers_, [&](const auto& known) {
    // A newcomer does not ask the store: if those who did have gone before they could tell it, it never learns that it
    // votes.
    return known.first != without && newest.votes(known.first) && known.second->member().view().votes(known.first) &&
           !known.second->blank();
  });
}

std::string Simulation::situation() const {
  auto text = fmt::format("goal {}", goal_);
  for (const auto& [id, trainer] : trainers_)
    text += fmt::format("; {} in phase {} of {} at step {}{}", id, static_cast<int>(trainer->phase()),
                        text_of(trainer->view()), trainer->log().size(), trainer->leaves() ? ", leaves" : "");
  return text;
}

Trainer* Simulation::trainer(Id id) {
  const auto at = trainers_.find(id);
  return at == trainers_.end() ? nullptr : at->second.get();
}

}  // namespace pliant::membership::sim
