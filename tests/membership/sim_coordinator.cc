#include "membership/sim_coordinator.h"

#include <algorithm>

namespace pliant::membership::sim {

void PlanningCoordinator::receive(Id from, const Payload& payload) {
  if (const auto* message = std::get_if<Agreement>(&payload)) on(from, *message);
  if (const auto* adopted = std::get_if<wire::Adopted>(&payload)) {
    learn(adopted->view);
    // Whoever is left behind may know nobody who is still there.
    if (adopted->view.epoch < view_.epoch)
      world_.send(id_, from, std::make_shared<const Payload>(Agreement(wire::InForce{view_.term, notice_of(view_)})));
  }
  if (std::holds_alternative<Wish>(payload)) waiting_[from] = world_.now();
}

void PlanningCoordinator::on(Id from, const Agreement& message) {
  if (const auto* promise = std::get_if<wire::Promise>(&message)) {
    learn(promise->view);
    if (promise->term == term_ && view_.rank_of(from) >= 0) promised_.insert(from);
  } else if (const auto* decline = std::get_if<wire::Decline>(&message)) {
    highest_ = std::max(highest_, decline->term);
    learn(decline->view);
  }
}

void PlanningCoordinator::learn(const wire::ViewNotice& notice) {
  auto view = view_from(notice);
  if (!view.ok()) return;
  highest_ = std::max(highest_, notice.term);
  if (std::tie(notice.epoch, notice.term) <= std::tie(view_.epoch, view_.term)) return;
  view_ = std::move(view).value();
  promised_.clear();
}

/// Never more newcomers than members who stay: until they have the state, they must not be able to outvote those who
/// have it.
View PlanningCoordinator::next() const {
  View next = view_;
  std::erase_if(next.members, [&](const auto& member) { return unwanted_.contains(member.id); });
  if (next.members.empty()) next = view_;
  const auto most = std::min(largest_, 2 * next.members.size());
  for (const auto& [id, heard] : waiting_) {
    const bool waits = world_.outside(id) && world_.now() - heard < milliseconds(150) && next.rank_of(id) < 0;
    if (waits && next.members.size() < most) next.members.push_back({id, static_cast<std::int32_t>(id), ""});
  }
  next.term = term_;
  next.epoch = view_.epoch + 1;
  return next;
}

void PlanningCoordinator::tick() {
  if (view_.members.empty() || next().members == view_.members) return;
  // A plan that does not come true may have been refused for its term.
  if (world_.now() - claimed_at_ > (mandated() ? milliseconds(400) : milliseconds(150))) {
    term_ = highest_ = std::max(highest_, term_) + 1;
    claimed_at_ = world_.now();
    promised_.clear();
  }
  Payload payload = Agreement(wire::Claim{term_, 0});
  if (mandated()) payload = wire::Plan{term_, view_.hash(), notice_of(next())};
  const auto packet = std::make_shared<const Payload>(std::move(payload));
  for (const auto& member : view_.members) world_.send(id_, member.id, packet);
}

}  // namespace pliant::membership::sim
