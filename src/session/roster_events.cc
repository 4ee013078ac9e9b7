// Roster: what the transport's thread hears, and what the machine makes of it.
#include <fmt/format.h>

#include <algorithm>

#include "base/base64.h"
#include "base/log.h"
#include "base/planted.h"
#include "membership/credible.h"
#include "session/roster_held.h"

namespace pliant::session {
namespace {

using namespace std::chrono_literals;
using membership::View;

/// The coordinator among those who write letters; ids of workers count from 0.
constexpr std::uint64_t kCoordinator = UINT64_MAX;
/// A worker that has not been given a view waits this long for a coordinator to come back.
constexpr Nanos kLonelyLimit = 10s;
/// One that the others have gone on without waits longer: somebody may take up the job again.
constexpr Nanos kExileLimit = 60s;
/// A member of a view that has to be recovered from, and is not reached for so long, counts as lost.
constexpr Nanos kTimeToSuspect = 500ms;
/// A newcomer that is not reached for so long is named to the coordinator.
constexpr Nanos kTimeToReach = 3s;

wire::Message as_message(const membership::Agreement& letter) {
  return std::visit([](const auto& message) { return wire::Message(message); }, letter);
}

std::optional<membership::Agreement> as_agreement(const wire::Message& message) {
  return std::visit(
      [](const auto& kind) -> std::optional<membership::Agreement> {
        if constexpr (std::is_constructible_v<membership::Agreement, decltype(kind)>)
          return membership::Agreement(kind);
        else
          return std::nullopt;
      },
      message);
}

/// A view as a store keeps it: the message, in letters.
std::string text_of(const View& view) {
  auto packet = wire::encode(membership::notice_of(view));
  return to_base64({reinterpret_cast<const char*>(packet.data()), packet.size()});
}

Result<View> view_from_text(const std::string& text) {
  auto bytes = from_base64(text);
  if (!bytes.ok()) return bytes.error();
  auto message = wire::decode({reinterpret_cast<const std::uint8_t*>(bytes.value().data()), bytes.value().size()});
  if (!message.ok()) return message.error();
  const auto* notice = std::get_if<wire::ViewNotice>(&message.value());
  if (!notice) return Error{Code::protocol, "another message"};
  return membership::view_from(*notice);
}

}  // namespace

void Roster::on_letter(std::uint64_t from, const wire::Message& message) {
  Held held(*this);
  membership::Knowledge known{options_.self, member_->newest_known(), member_->promised()};
  if (auto objection = membership::objection_to(from, message, known)) {
    if (objection->offence)
      transport_->leave_behind(from, objection->what);
    else
      log::debug("worker {} is not believed: it sent {}", from, objection->what);
    return;
  }
  if (const auto* dead = std::get_if<wire::Dead>(&message))
    transport_->believe_dead(dead->id, dead->view);
  else if (const auto* entered = std::get_if<wire::Entered>(&message))
    on_entered(from, *entered);
  else if (auto letter = as_agreement(message))
    apply(member_->on_message(from, *letter, clock_.now()));
}

/// Whoever has entered a view says thereby that it is in force. If this worker is in it with the group of the view
/// before, it needs a new one too.
void Roster::on_entered(std::uint64_t from, const wire::Entered& entered) {
  formed_ = entered.view_hash;
  apply(member_->on_message(from, wire::InForce{entered.view.term, entered.view}, clock_.now()));
  if (kept_ != entered.view_hash || member_->view().hash() != kept_ || member_->recovering()) return;
  kept_ = 0;
  if (group_) group_->fence({Code::peer_lost, "another worker has formed the view anew"});
  next_ = member_->view();
  changed_->notify_all();
}

void Roster::on_lost(const collective::PeerLoss& loss) {
  Held held(*this);
  if (loss.orderly) {
    absentees_.on_goodbye(loss.id, loss.view.epoch);
    if (absentees_.gives_up() && member_->view().rank_of(loss.id) >= 0)
      apply(member_->on_lost(loss.id, true, clock_.now(), absentees_.departed().at(loss.id)));
    return;
  }
  if (loss.proven) absentees_.on_death(loss.id);
  if (loss.proven) testify(loss);
  apply(member_->on_lost(loss.id, loss.proven || planted("suspicion-is-proof"), clock_.now(), loss.view));
}

/// Those on other hosts cannot see what this host's kernel says.
void Roster::testify(const collective::PeerLoss& loss) {
  const auto& members = member_->view().members;
  auto is = [&](const wire::Member& member) { return member.id == loss.id && member.host == options_.self.host; };
  if (std::ranges::none_of(members, is)) return;
  std::vector<std::uint64_t> elsewhere;
  for (const auto& member : members)
    if (member.host != options_.self.host) elsewhere.push_back(member.id);
  transport_->send(std::move(elsewhere), wire::Dead{loss.id, loss.view});
}

/// What it was told while it could not be reached is lost: whoever is to enter a view hears of it again.
void Roster::on_found(std::uint64_t id) {
  Held held(*this);
  member_->on_found(id);
  absentees_.on_found(id);
  const auto& view = member_->view();
  if (member_->recovering() || view.rank_of(id) < 0 || view.rank_of(self()) < 0) return;
  transport_->send({id}, wire::InForce{view.term, membership::notice_of(view)});
}

void Roster::on_tick() {
  Held held(*this);
  apply(member_->on_time(clock_.now()));
  if (member_->recovering() && !outside())
    suspect_unreached();
  else
    name_unreached();
}

/// Whoever decided this view had heard all of its members, which ends suspicions; those who have been out of reach from
/// here all the time are told of by nobody again.
void Roster::suspect_unreached() {
  auto members = member_->view().members;
  for (const auto& member : members) {
    if (member_->is_lost(member.id) || transport_->reaches({member})) {
      unreached_.erase(member.id);
      continue;
    }
    auto since = unreached_.try_emplace(member.id, clock_.now()).first->second;
    if (clock_.now() - since >= kTimeToSuspect) apply(member_->on_lost(member.id, false, clock_.now()));
  }
}

/// One newcomer that this member cannot reach would keep all others from being taken in.
void Roster::name_unreached() {
  const auto& plan = member_->plan();
  if (!plan || outside() || planted("unreached-unsaid")) return unreached_.clear();
  for (const auto& member : plan->members) {
    if (member_->view().rank_of(member.id) >= 0 || transport_->reaches({member})) {
      unreached_.erase(member.id);
      continue;
    }
    auto& since = unreached_.try_emplace(member.id, clock_.now()).first->second;
    if (clock_.now() - since < kTimeToReach) continue;
    since = clock_.now();
    log::warn("worker {} at {} cannot be reached from here: the job grows without it", member.id,
              member.endpoint.empty() ? member.address : member.endpoint);
    transport_->tell(wire::Unreached{member.id});
  }
}

/// A worker that has no view yet does not wait for a coordinator for ever.
void Roster::on_silence(Nanos since, const std::string& why) {
  Held held(*this);
  if (first_ && !outside()) return;
  if (since < (first_ ? kExileLimit : kLonelyLimit)) return;
  failure_ = Error{Code::peer_lost, "the job's coordinator is gone: " + why};
  changed_->notify_all();
}

void Roster::on_coordinator(const wire::Message& message) {
  Held held(*this);
  if (const auto* notice = std::get_if<wire::ViewNotice>(&message)) {
    on_view(*notice);
  } else if (const auto* plan = std::get_if<wire::Plan>(&message)) {
    meet(plan->view.members);
    // A coordinator that came between has asked for a higher term: without a word this one would wait for ever.
    if (!outside() && !member_->on_plan(*plan) && plan->term < member_->promised())
      transport_->tell(member_->refusal());
  } else if (const auto* refusal = std::get_if<wire::Refusal>(&message)) {
    if (!first_ || outside()) failure_ = Error{Code::refused, "the job refused this worker: " + refusal->reason};
  } else if (std::holds_alternative<wire::Over>(message)) {
    over_ = true;
  } else if (const auto* answer = std::get_if<wire::Answer>(&message)) {
    if (!answer->ok && std::exchange(objection_, answer->text) != answer->text)
      log::warn("the wish for another number of workers is refused: {}", answer->text);
  } else if (const auto* dead = std::get_if<wire::Dead>(&message)) {
    transport_->believe_dead(dead->id, dead->view);
  } else if (auto letter = as_agreement(message)) {
    apply(member_->on_message(kCoordinator, *letter, clock_.now()));
  }
  changed_->notify_all();
}

/// The coordinator knows views that are in force. Members know them before, unless they cannot reach each other.
void Roster::on_view(const wire::ViewNotice& notice) {
  auto view = membership::view_from(notice);
  if (!view.ok()) return;
  bool first = !std::exchange(first_, view.value());
  if (!first || view.value().rank_of(self()) >= 0)
    apply(member_->on_message(kCoordinator, wire::InForce{notice.term, notice}, clock_.now()));
  else
    meet(notice.members);
  // A view without this worker, told to one that has asked to be taken in: its wish may have been of a plan that is
  // over.
  if (place_ == Place::asking && view.value().rank_of(self()) < 0) tell_ready();
}

/// Connections to newcomers stand before they are taken in.
void Roster::meet(const std::vector<wire::Member>& members) { transport_->expect(members); }

void Roster::apply(const membership::Decision& decision) {
  if (decision.fence) log::debug("view {} is fenced", member_->view().epoch);
  if (decision.evicted) log::debug("out of the view that follows view {}", member_->view().epoch);
  if (decision.fence && group_ && !planted("never-fenced")) group_->fence({Code::peer_lost, "a worker was lost"});
  note_votes(decision);
  for (const auto& letter : decision.letters) {
    if (letter.to != kCoordinator)
      transport_->send({letter.to}, as_message(letter.message));
    else
      transport_->tell(as_message(letter.message));
  }
  if (decision.ask) ask_store(*decision.ask);
  if (decision.enter) {
    next_ = *decision.enter;
    absentees_.on_view(*decision.enter);
  }
  if (decision.evicted) next_.reset();  // whatever was to be entered is over
  if (!decision.evicted) report_view();
  if (decision.enter || decision.evicted) {
    place_ = decision.evicted ? Place::outside : Place::inside;
    changed_->notify_all();
  }
}

/// What the coordinator is promised is a term for its plans, and no vote on a view.
void Roster::note_votes(const membership::Decision& decision) {
  auto is_vote = [](const membership::Letter& letter) {
    const auto& message = letter.message;
    return letter.to != kCoordinator &&
           (std::holds_alternative<wire::Claim>(message) || std::holds_alternative<wire::Promise>(message) ||
            std::holds_alternative<wire::Propose>(message) || std::holds_alternative<wire::Stored>(message));
  };
  if (!noted_.unvoted || !(member_->has_voted() || std::ranges::any_of(decision.letters, is_vote))) return;
  noted_.unvoted = 0;
  transport_->note_view(noted_);
}

/// A view may end while it is entered, or before. Whoever dies in it is then known to have been in it: so must those be
/// who are left.
void Roster::report_view() {
  const auto& view = member_->view();
  if (view.rank_of(self()) < 0 || std::exchange(reported_, view.hash()) == view.hash()) return;
  transport_->tell(wire::Adopted{membership::notice_of(view), step_});
  for (const auto& member : view.members)  // those who come with this view have not heard who of it is dead
    if (member_->ended(member.id)) testify({member.id, false, true, "", member_->ended_in(member.id)});
}

/// A store takes one successor of each epoch. Asked again by the machine until there is an answer.
void Roster::ask_store(const View& view) {
  if (std::exchange(question_.open, true)) return;
  auto key = fmt::format("{}/view/{}", options_.job, view.epoch);
  auto answered = [this](const Result<membership::Attempt>& attempt) {
    Held held(*this);
    question_.open = false;
    if (!attempt.ok()) {
      if (!std::exchange(question_.unanswered, true))
        log::warn("workers are out of reach, and the store does not say how to go on: {}", attempt.error().message);
      return;
    }
    question_.unanswered = false;
    auto taken = view_from_text(attempt.value().now.text);
    if (!taken.ok()) return log::warn("the store holds something else than a view: {}", taken.error().message);
    apply(member_->on_decided(taken.value(), clock_.now()));
  };
  transport_->decide(key, text_of(view), answered);
}

}  // namespace pliant::session
