// The coordinator: who should be in the next view, and what is asked of it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "membership/coordinator.h"

namespace pliant::membership {
namespace {

/// A newcomer that a member could not reach is tried again after that.
constexpr Nanos kUnreached = std::chrono::seconds(30);

}  // namespace

/// No member is about to be missed: then a recovery will change the view, and a plan would only be in the way.
bool Coordinator::steady() const {
  return std::none_of(view_.members.begin(), view_.members.end(), [&](const auto& member) {
    const auto& worker = workers_.at(member.id);
    return worker.ended || worker.goodbye;
  });
}

/// Workers outside of the view that can be taken in: those who have been in it before come first.
std::vector<std::uint64_t> Coordinator::waiting() const {
  auto ids = ready();
  std::erase_if(ids, [&](auto id) { return in_view(id); });
  return ids;
}

/// The same with members that have said that they are in no view: theirs was lost with those who had the state.
std::vector<std::uint64_t> Coordinator::ready() const {
  std::vector<std::uint64_t> ids;
  for (bool served : {true, false})
    for (const auto& [id, worker] : workers_)
      if (worker.served == served && worker.link && worker.ready && !worker.ended && !worker.goodbye &&
          worker.going == Going::no && worker.unreached_until <= now_)
        ids.push_back(id);
  return ids;
}

/// Who is there stays, as far as so many are wanted. Of those who are to be replaced, only as many as nobody can
/// replace.
std::vector<wire::Member> Coordinator::target() const {
  auto slow = [&](const wire::Member& member) { return workers_.at(member.id).going == Going::replaced; };
  auto newcomers = waiting();
  auto keep = view_.members.size() - static_cast<std::size_t>(std::ranges::count_if(view_.members, slow));
  keep = std::min<std::size_t>(keep, wanted_);
  newcomers.resize(std::min(newcomers.size(), wanted_ - keep));
  auto keep_slow = wanted_ - keep - newcomers.size();
  // Somebody has to hand the state over: of members that are all to be replaced, one stays until the others have it.
  if (keep == 0 && keep_slow == 0 && !newcomers.empty()) keep_slow = 1;
  std::vector<wire::Member> members;
  for (const auto& member : view_.members) {
    auto& left = slow(member) ? keep_slow : keep;
    if (left == 0) continue;
    --left;
    members.push_back(member);
  }
  for (auto id : newcomers) members.push_back(workers_.at(id).self);
  return members;
}

bool Coordinator::is_planned(std::uint64_t id) const {
  return plan_ && std::ranges::any_of(plan_->view.members, [&](const auto& member) { return member.id == id; });
}

void Coordinator::plan() {
  if (!leading_ || over() || !steady()) return;
  auto members = target();
  // A plan that is out is taken back by another one, if only by one that changes nothing.
  if (plan_ ? members == plan_->view.members : members == view_.members) return;
  auto next = view_;
  next.term = term_;
  next.planned = ++next.epoch;
  next.members = members;
  plan_ = wire::Plan{term_, view_.hash(), notice_of(next)};
  for (const auto& member : view_.members) send_to(member.id, *plan_);
  for (const auto& member : members) {
    if (in_view(member.id)) continue;
    workers_.at(member.id).invited = true;
    send_to(member.id, *plan_);
  }
}

// ---- what they are asked for ----

std::string Coordinator::objection_to(const wire::Resize& resize) const {
  auto n = resize.workers;
  if (over()) return fmt::format("job '{}' is over", options_.job);
  if (n == 0) return fmt::format("job '{}' needs at least one worker ('pliant stop' ends it)", options_.job);
  if (n < options_.least) return fmt::format("job '{}' has at least {} workers (--min)", options_.job, options_.least);
  if (n > options_.most) return fmt::format("job '{}' has at most {} workers (--max)", options_.job, options_.most);
  return {};
}

std::string Coordinator::answer_to(const wire::Resize& resize) const {
  auto there = workers_.size() - static_cast<std::size_t>(std::count_if(
                                     workers_.begin(), workers_.end(), [](auto& entry) { return entry.second.ended; }));
  auto text = fmt::format("job '{}' will have {} worker{}; it has {} now", options_.job, resize.workers,
                          resize.workers == 1 ? "" : "s", view_.size());
  if (!has_agents() && there < resize.workers)
    text += fmt::format(", and nobody starts more ('pliant run --attach {}' does)", options_.job);
  return text;
}

void Coordinator::on(Link link, const wire::Resize& resize) {
  if (auto reason = objection_to(resize); !reason.empty()) return send(link, wire::Answer{0, reason});
  wanted_ = resize.workers;
  restarts_ = std::max(restarts_, 0);  // whoever asks for so many means it
  settled_ = resize.settled != 0;
  send(link, wire::Answer{1, answer_to(resize)});
}

void Coordinator::on(Link link, const wire::Replace& replace) {
  bool answer = !worker_at(link);
  if (!in_view(replace.id)) {
    if (answer) send(link, wire::Answer{0, fmt::format("worker {} is not training", replace.id)});
    return;
  }
  workers_.at(replace.id).going = Going::replaced;
  if (answer) send(link, wire::Answer{1, fmt::format("worker {} goes as soon as another one is ready", replace.id)});
}

/// One newcomer that a member cannot reach would keep all others from being taken in.
void Coordinator::on(Link link, const wire::Unreached& unreached) {
  auto from = worker_at(link);
  if (!from || !in_view(*from) || in_view(unreached.id) || !is_planned(unreached.id)) return;
  workers_.at(unreached.id).unreached_until = now_ + kUnreached;
}

}  // namespace pliant::membership
