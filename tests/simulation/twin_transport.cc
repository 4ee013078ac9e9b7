#include "simulation/twin_transport.h"

#include <algorithm>

#include "simulation/world.h"

namespace pliant::sim {

using collective::PeerLoss;

namespace {

std::string text_of(const wire::ViewNotice& view) {
  std::string text = fmt::format("view {} of term {}:", view.epoch, view.term);
  for (const auto& member : view.members) text += fmt::format(" {}", member.id);
  if (!view.newcomers.empty()) text += fmt::format(" ({} without a vote)", view.newcomers.size());
  return text;
}

/// For the reader of a trace.
std::string text_of(const wire::Message& message) {
  if (auto* claim = std::get_if<wire::Claim>(&message)) return fmt::format("a claim to term {}", claim->term);
  if (auto* promise = std::get_if<wire::Promise>(&message))
    return fmt::format("a promise of term {} ({}; stored {})", promise->term, text_of(promise->view),
                       text_of(promise->stored));
  if (auto* decline = std::get_if<wire::Decline>(&message)) return fmt::format("a refusal, promised {}", decline->term);
  if (auto* propose = std::get_if<wire::Propose>(&message)) return "the proposal of " + text_of(propose->view);
  if (auto* stored = std::get_if<wire::Stored>(&message))
    return fmt::format("that it stored {:08x}", stored->hash >> 32);
  if (auto* in_force = std::get_if<wire::InForce>(&message)) return "that in force is " + text_of(in_force->view);
  if (auto* entered = std::get_if<wire::Entered>(&message)) return "that it entered " + text_of(entered->view);
  if (auto* notice = std::get_if<wire::ViewNotice>(&message)) return "of " + text_of(*notice);
  if (auto* plan = std::get_if<wire::Plan>(&message)) return "the plan of " + text_of(plan->view);
  if (auto* dead = std::get_if<wire::Dead>(&message))
    return fmt::format("that {} died in view {}", dead->id, dead->view.epoch);
  return fmt::format("message {}", message.index());
}

}  // namespace

TwinTransport::TwinTransport(Process& process, wire::Member self) : process_(process), self_(std::move(self)) {}

TwinTransport::~TwinTransport() {
  *alive_ = false;
  process_.world().gone(*this);
}

void TwinTransport::start(session::TransportEvents events) {
  events_ = std::move(events);
  process_.world().came(*this);
  no_coordinator_since_ = process_.world().now();
  tick();
  look_for_coordinator();
}

void TwinTransport::tick() {
  process_.later(milliseconds(50), [this, alive = alive_] {
    if (!*alive || !events_) return;
    events_->on_tick();
    beat();
    tick();
  });
}

/// A heartbeat that reaches a host where nobody knows the connection any more is answered by a reset.
void TwinTransport::beat() {
  auto& world = process_.world();
  std::vector<std::uint64_t> gone;
  for (const auto& [id, link] : links_) {
    if (!link.connected || !remote(link)) continue;
    if (world.cut(self_.host, link.member.host) || world.cut(link.member.host, self_.host)) continue;
    auto* peer = world.transport_of(id);
    bool known = peer && peer->links_[self_.id].connected && peer->links_[self_.id].connection == link.connection;
    if (!known) gone.push_back(id);
  }
  for (auto id : gone) lose(id, false, "it closed the connection");
}

// ---- connecting ----

void TwinTransport::expect(std::vector<wire::Member> members) {
  for (const auto& member : members) {
    if (member.id == self_.id) continue;
    auto& link = links_[member.id];
    if (link.member.address.empty()) link.member = member;
    if (link.connected || link.proven) continue;
    if (link.lost && !remote(link)) continue;
    if (!process_.world().lives(member.id) && !remote(link)) {  // the kernel says so
      process_.later(microseconds(100), [this, alive = alive_, id = member.id] {
        if (*alive) lose(id, true, "its process ended", process_.world().last_view_of(id));
      });
      continue;
    }
    if (member.id < self_.id && !std::exchange(link.dialing, true)) dial(member.id);
  }
}

/// Workers with higher ids dial those with lower ones.
void TwinTransport::dial(std::uint64_t id) {
  auto& around = process_.world();
  auto delay = remote(links_[id]) ? around.rng().between(microseconds(300), milliseconds(4))
                                  : around.rng().between(microseconds(50), microseconds(500));
  process_.later(delay, [this, alive = alive_, id] {
    if (!*alive) return;
    auto& world = process_.world();
    auto& link = links_[id];
    if (link.connected || link.proven) {
      link.dialing = false;
      return;
    }
    auto* peer = world.transport_of(id);
    bool open = peer && !world.cut(self_.host, link.member.host) && !world.cut(link.member.host, self_.host);
    if (open && !peer->process().stopped()) {
      link.dialing = false;
      auto connection = world.next_number();
      connected(id, link.member, connection);
      peer->connected(self_.id, self_, connection);
      return;
    }
    if (!remote(link) && !world.lives(id)) {
      link.dialing = false;
      return lose(id, true, "its process ended", world.last_view_of(id));
    }
    process_.later(milliseconds(20), [this, alive, id] {
      if (*alive) dial(id);
    });
  });
}

void TwinTransport::connected(std::uint64_t id, const wire::Member& member, std::uint64_t connection) {
  auto& link = links_[id];
  if (link.connected) lose(id, false, "it called again");
  link.member = member;
  link.connection = connection;
  link.connected = true;
  link.lost = false;
  link.held.clear();
  process_.later(Nanos(0), [this, alive = alive_, id, connection] {
    if (!*alive || !events_ || links_[id].connection != connection || !links_[id].connected) return;
    events_->on_found(id);
  });
  flush(link);
}

bool TwinTransport::reaches(const std::vector<wire::Member>& members) const {
  return std::ranges::all_of(members, [&](const auto& member) {
    auto link = links_.find(member.id);
    return member.id == self_.id || (link != links_.end() && link->second.connected);
  });
}

// ---- sending ----

void TwinTransport::send(std::vector<std::uint64_t> ids, wire::Message message) {
  if (!process_.alive()) return;
  if (std::holds_alternative<wire::Stored>(message)) process_.world().switches(process_);
  for (auto id : ids) {
    auto& link = links_[id];
    if (id == self_.id || link.lost || dying_) continue;
    if (const auto* news = std::get_if<wire::InForce>(&message))
      dying_ = process_.world().dies_after_telling(process_, news->view);
    link.outbox.emplace_back(message);
    flush(link);
  }
}

void TwinTransport::send_word(std::uint64_t to, std::uint64_t view, const Word& word) {
  auto& link = links_[to];
  if (link.lost) return;
  link.outbox.emplace_back(ForView{view, word});
  flush(link);
}

void TwinTransport::flush(Link& link) {
  for (; link.connected && !link.outbox.empty(); link.outbox.pop_front()) post(link, std::move(link.outbox.front()));
}

void TwinTransport::post(Link& link, Parcel parcel) {
  auto& world = process_.world();
  auto* peer = world.transport_of(link.member.id);
  if (!peer || !process_.alive()) return;
  auto usual = remote(link) ? world.rng().between(microseconds(100), milliseconds(2))
                            : world.rng().between(microseconds(5), microseconds(300));
  auto delay = link.order.delay(world.now(), usual);
  peer->process_.later(delay, [peer, alive = peer->alive_, from = self_.id, connection = link.connection,
                               parcel = std::move(parcel)]() mutable {
    if (*alive) peer->arrive(from, connection, std::move(parcel));
  });
}

// ---- receiving ----

void TwinTransport::arrive(std::uint64_t from, std::uint64_t connection, Parcel parcel) {
  auto& link = links_[from];
  if (!link.connected || link.connection != connection) return;
  if (!link.held.empty() || process_.world().cut(link.member.host, self_.host)) {
    link.held.push_back(std::move(parcel));
    return;
  }
  take_in(from, std::move(parcel));
}

void TwinTransport::healed_from(const std::string& host) {
  for (auto& [id, link] : links_) {
    if (link.member.host != host) continue;
    auto held = std::exchange(link.held, {});
    for (auto& parcel : held)
      if (link.connected) take_in(id, std::move(parcel));
  }
}

void TwinTransport::take_in(std::uint64_t from, Parcel parcel) {
  if (!events_) return;
  std::uint64_t view = 0;
  if (auto* word = std::get_if<ForView>(&parcel)) view = word->view;
  if (auto* message = std::get_if<wire::Message>(&parcel)) {
    if (const auto* bye = std::get_if<wire::Bye>(message)) {
      links_[from].orderly = true;
      links_[from].last_view = std::max<wire::LastView>(links_[from].last_view, bye->view);
      return;
    }
    if (auto* entered = std::get_if<wire::Entered>(message)) view = entered->view_hash;
    process_.world().note(process_, "hears {} from {}", text_of(*message), from);
    events_->on_letter(from, *message);
    if (view == 0) return;
  }
  auto group = groups_.find(view);
  if (group == groups_.end()) {
    parked_[view].emplace_back(from, std::move(parcel));
    return;
  }
  if (auto* word = std::get_if<ForView>(&parcel))
    group->second->hear(word->word);
  else
    group->second->entered(from);
}

void TwinTransport::subscribe(TwinGroup& group) {
  groups_[group.view_hash()] = &group;
  auto parked = std::exchange(parked_[group.view_hash()], {});
  parked_.erase(group.view_hash());
  for (auto& [from, parcel] : parked) {
    if (auto* word = std::get_if<ForView>(&parcel))
      group.hear(word->word);
    else
      group.entered(from);
  }
  for (const auto& [id, link] : links_)
    if (link.lost) group.lost({id, link.orderly, link.proven, "it was lost before", link.last_view});
}

void TwinTransport::unsubscribe(TwinGroup& group) {
  auto at = groups_.find(group.view_hash());
  if (at != groups_.end() && at->second == &group) groups_.erase(at);
}

// ---- losing ----

void TwinTransport::peer_died(const TwinTransport& peer) {
  auto id = peer.self_.id;
  auto known = links_.find(id);
  if (known == links_.end()) return;
  auto& world = process_.world();
  auto& link = known->second;
  auto connection = link.connection;
  auto its = peer.links_.find(self_.id);
  auto last_words = its == peer.links_.end() ? Nanos(0) : its->second.order.left(world.now());
  if (!remote(link)) {
    auto proof = last_words + world.rng().between(microseconds(20), milliseconds(3));
    if (world.rng().chance(25) && link.connected) {  // the connection's end may come first
      process_.later(last_words + world.rng().between(microseconds(20), milliseconds(1)), [this, alive = alive_, id] {
        if (*alive) lose(id, false, "it closed the connection");
      });
      proof += milliseconds(2);
    }
    process_.later(proof, [this, alive = alive_, id, view = peer.process_.last_view()] {
      if (*alive) lose(id, true, "its process ended", view);
    });
    return;
  }
  if (!link.connected || world.cut(link.member.host, self_.host)) return;
  auto delay = world.rng().between(microseconds(100), milliseconds(5));  // a reset may overtake what it had sent
  if (world.rng().chance(70)) delay += last_words;
  process_.later(delay, [this, alive = alive_, id, connection] {
    if (*alive && links_[id].connection == connection) lose(id, false, "it closed the connection");
  });
}

void TwinTransport::silence_from(const std::string& host) {
  std::vector<std::uint64_t> silent;
  for (const auto& [id, link] : links_)
    if (link.connected && link.member.host == host) silent.push_back(id);
  for (auto id : silent) hang_up(id, "it was silent for too long");
}

/// The other end sees the connection's end, if anything gets there and as soon as it runs.
void TwinTransport::hang_up(std::uint64_t id, const std::string& how) {
  auto& link = links_[id];
  auto connection = link.connection;
  auto* peer = process_.world().transport_of(id);
  lose(id, false, how);
  if (!peer || process_.world().cut(self_.host, link.member.host)) return;
  peer->process_.later(milliseconds(1), [peer, alive = peer->alive_, id = self_.id, connection] {
    if (*alive && peer->links_[id].connection == connection) peer->lose(id, false, "it closed the connection");
  });
}

void TwinTransport::stands_still(std::uint64_t id) {
  if (auto link = links_.find(id); link != links_.end() && link->second.connected) hang_up(id, "it does not run");
}

void TwinTransport::believe_dead(std::uint64_t id, wire::LastView view) {
  process_.later(Nanos(0), [this, alive = alive_, id, view] {
    if (!*alive || !links_.contains(id) || id == self_.id) return;
    auto& link = links_[id];
    if (link.proven && std::exchange(link.last_view, std::max(link.last_view, view)) < view) return tell_loss(link);
    if (remote(link)) lose(id, true, "its host says that its process ended", view);
  });
}

void TwinTransport::on_settled(std::set<std::uint64_t> at_hand) {
  for (auto at = links_.begin(); at != links_.end();) {
    auto& [id, link] = *at;
    bool of_no_interest = link.lost && link.proven && !link.dialing && !at_hand.contains(id);
    bool before = std::exchange(link.settled_without, of_no_interest);
    at = before && of_no_interest ? links_.erase(at) : std::next(at);
  }
}

void TwinTransport::lose(std::uint64_t id, bool proven, const std::string& how, wire::LastView view) {
  auto& link = links_[id];
  link.member.id = id;
  if (link.proven || (link.lost && !proven)) return;
  process_.world().note(process_, "loses {}{}: {}", id, proven ? " (proven)" : "", how);
  // What it still had to say comes first.
  link.connected = false;
  link.lost = true;
  link.proven = proven || link.orderly;
  link.last_view = std::max(link.last_view, view);
  link.outbox.clear();
  link.held.clear();
  tell_loss(link);
  if (!link.proven && id < self_.id && !std::exchange(link.dialing, true)) dial(id);
}

void TwinTransport::tell_loss(const Link& link) {
  PeerLoss loss{link.member.id, link.orderly, link.proven, "lost", link.last_view};
  auto groups = groups_;
  for (auto& [view, group] : groups) group->lost(loss);
  if (events_) events_->on_lost(loss);
}

// ---- groups ----

Result<std::unique_ptr<collective::Group>> TwinTransport::form(collective::Team team) {
  auto view = process_.world().view(team.view_hash);
  auto alone = team.members.size() == 1;
  auto group = std::make_unique<TwinGroup>(process_, alone ? nullptr : this, std::move(team), std::move(view));
  PLIANT_TRY(group->enter());
  return std::unique_ptr<collective::Group>(std::move(group));
}

// ---- the coordinator and the store ----

void TwinTransport::look_for_coordinator() {
  if (coordinator_ == 0) {
    coordinator_ = process_.world().offices().connect(*this, self_.host);
    if (coordinator_ != 0)
      tell(events_->introduce());
    else
      events_->on_silence(process_.world().now() - no_coordinator_since_, "nobody answers");
  }
  process_.later(milliseconds(100), [this, alive = alive_] {
    if (*alive && events_) look_for_coordinator();
  });
}

void TwinTransport::tell(wire::Message message) {
  if (std::holds_alternative<wire::Ready>(message)) process_.note_blank(true);
  if (const auto* adopted = std::get_if<wire::Adopted>(&message)) process_.note_agreed(adopted->view.epoch);
  if (coordinator_ != 0 && process_.alive()) process_.world().offices().tell(coordinator_, std::move(message));
}

void TwinTransport::report(wire::Progress progress) { tell(std::move(progress)); }

void TwinTransport::coordinator_says(std::uint64_t connection, const wire::Message& message) {
  if (connection != coordinator_ || !events_) return;
  process_.world().note(process_, "hears {} from the coordinator", text_of(message));
  events_->on_coordinator(message);
}

void TwinTransport::coordinator_closed(std::uint64_t connection) {
  if (connection != coordinator_) return;
  coordinator_ = 0;
  no_coordinator_since_ = process_.world().now();
}

void TwinTransport::report_outcome(Outcome outcome, std::uint64_t step) {
  process_.note_outcome(outcome);
  tell(wire::LoopEnded{static_cast<std::uint8_t>(outcome), step});
}

void TwinTransport::say_goodbye(Outcome outcome, std::uint64_t step) {
  process_.note_outcome(outcome);
  process_.note_closed();
  std::vector<std::uint64_t> all;
  for (const auto& [id, link] : links_) all.push_back(id);
  wire::Bye bye;
  bye.view = process_.last_view().epoch;
  send(all, bye);
  tell(wire::Bye{static_cast<std::uint8_t>(outcome), step});
}

void TwinTransport::decide(const std::string& key, const std::string& text, Answered answered) {
  auto& world = process_.world();
  process_.later(world.rng().between(microseconds(300), milliseconds(5)),
                 [this, alive = alive_, key, text, answered = std::move(answered)] {
                   if (*alive) answered(process_.world().offices().server().replace(key, 0, text));
                 });
}

}  // namespace pliant::sim
