// The coordinator: whether the job is over, and how it ended.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "membership/coordinator.h"

namespace pliant::membership {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kTimeToReport = 1s;  // for a newcomer to say that it has become a member

}  // namespace

// ---- is anybody left? ----

/// As far as this coordinator knows, it may be in the newest view: in one, or out of sight.
bool Coordinator::may_be_member(std::uint64_t id) const {
  const auto& worker = workers_.at(id);
  if (has_ended(worker) || worker.goodbye) return false;
  if (worker.link) {
    if (!in_view(id) || worker.ready) return false;  // whoever is ready has said that it is in no view
    return worker.view >= newest_of_the_dead() || !asked_ || !worker.answered;
  }
  if (in_view(id) || is_planned(id)) return true;
  // A worker that is out of sight may be a member of a view that is known only from those who died in it, or left for
  // it.
  if (newest_of_the_dead() <= view_.epoch && !any_member(Outcome::left)) return false;
  return (worker.named || worker.served || worker.invited) && !is_disowned(worker);
}

/// Its agent has named all of its workers, and this is not among them.
bool Coordinator::is_disowned(const Worker& worker) const {
  auto agent = agents_.find(worker.self.host);
  return agent != agents_.end() && agent->second.link && agent->second.complete && !worker.named;
}

/// The epoch of the newest view that somebody who has ended was in. Others may have been left behind in an older one.
std::uint64_t Coordinator::newest_of_the_dead() const {
  auto newest = former_.last_view();
  for (const auto& [id, worker] : workers_)
    if (worker.ended) newest = std::max(newest, worker.last_view.epoch);
  return newest;
}

/// Those who are there and may have been left behind have time to say more; then they are asked which view they know.
void Coordinator::look_for_the_end() {
  if (!may_all_be_gone()) {
    gone_since_.reset();
    asked_ = false;
    return;
  }
  if (!gone_since_) gone_since_ = now_;
  if (now_ - *gone_since_ < kTimeToReport || std::exchange(asked_, true)) return;
  for (auto& [id, worker] : workers_) worker.answered = false;
  claim_above(term_);
}

/// Nobody is left but those who are there and may have been left behind.
bool Coordinator::may_all_be_gone() const {
  return formed() && std::ranges::none_of(workers_, [&](const auto& entry) {
           const auto& worker = entry.second;
           return may_be_member(entry.first) && !(worker.link && worker.view < newest_of_the_dead());
         });
}

/// Somebody has died in a view that was never reported here: which workers were in it, only the agents of all hosts
/// together can tell.
bool Coordinator::may_know_more() const {
  if (newest_of_the_dead() <= view_.epoch || anybody_finished()) return false;
  return std::ranges::any_of(agents_, [](const auto& entry) {
    const auto& [host, agent] = entry;
    bool only_watches = host.empty() && agent.slots == 0;
    return !only_watches && !(agent.link && agent.complete);
  });
}

bool Coordinator::all_gone() const {
  bool decided = any_member(Outcome::finished) || any_member(Outcome::stopped);
  return formed() && !may_know_more() && std::ranges::none_of(workers_, [&](const auto& entry) {
           return may_be_member(entry.first) || (!decided && may_decide(entry.second));
         });
}

/// The newest view in which somebody has reported a step.
std::uint64_t Coordinator::trained_in() const {
  auto newest = former_.trained_in();
  for (const auto& [id, worker] : workers_) newest = std::max(newest, worker.trained_in);
  return newest;
}

/// Its loop is finished, perhaps the program's last, but not its session: it will say whether it goes on, or its agent
/// how it ended.
bool Coordinator::may_decide(const Worker& worker) const {
  if (worker.outcome != Outcome::finished || worker.goodbye || has_ended(worker) || is_disowned(worker)) return false;
  return std::max(worker.last_view.epoch, worker.view) >= trained_in();
}

/// Somebody who is there may have become a member of a view that is not known here, and will say so.
bool Coordinator::may_have_switched() const {
  if (!gone_since_ || now_ - *gone_since_ >= kTimeToReport) return false;
  return std::ranges::any_of(workers_, [&](const auto& entry) {
    const auto& [id, worker] = entry;
    return is_there(worker) && !worker.goodbye && (in_view(id) || is_planned(id));
  });
}

/// What was said binds, also a coordinator that was told of it and does not know all of those who are gone.
bool Coordinator::over() const {
  if (said_ && formed()) return true;
  return all_gone() && !may_have_switched() && !(lost() && rescue_ != Rescue::impossible);
}

bool Coordinator::some_have_not_heard() const {
  return std::ranges::any_of(agents_,
                             [](const auto& entry) { return !entry.first.empty() && !entry.second.told_over; });
}

bool Coordinator::lost() const {
  if (said_ || !all_gone() || may_have_switched() || stopping() || anybody_finished()) return false;
  return !any_member(Outcome::stopped) || !waiting().empty();
}

Letters Coordinator::on_checkpoint(std::optional<std::uint64_t> step, const std::string& why) {
  if (!needs_checkpoint()) return act();
  bool some_will_come = restarts_ >= 0 || !ready().empty();
  rescue_ = step && some_will_come ? Rescue::possible : Rescue::impossible;
  resume_step_ = step.value_or(0);
  no_rescue_ = step ? "no restarts are left (--max-restarts)" : why;
  return act();
}

// ---- how it ended ----

void Coordinator::tell_over() {
  if (is_hopeless()) tell_agents_over(*said_);
  if (!over()) return;
  for (auto& [id, worker] : workers_)
    if (!worker.goodbye && is_there(worker) && !std::exchange(worker.told, true)) send(worker.link, wire::Over{});
  auto how = verdict();
  if (!said_)
    said_ = wire::Over{static_cast<std::uint8_t>(how), how == Outcome::failed ? reason_of_failure() : std::string()};
  tell_agents_over(*said_);
}

/// Somebody's last loop is finished. One outside of the view may have finished a loop before the program's last: then
/// others have trained on, or were stopped, in a view without it.
bool Coordinator::anybody_finished() const {
  if (any_member(Outcome::stopped)) return false;  // in the program's last loop, where all say the same
  if (any_member(Outcome::finished)) return true;
  auto newest = trained_in();
  return std::ranges::any_of(workers_, [&](const auto& entry) {
    const auto& worker = entry.second;
    return worker.outcome == Outcome::finished && std::max(worker.last_view.epoch, worker.view) >= newest;
  });
}

/// A member of the newest view, or of one that is known only from those who have ended in it.
bool Coordinator::was_last(std::uint64_t id) const {
  return in_view(id) || workers_.at(id).last_view.epoch > view_.epoch;
}

bool Coordinator::any_member(Outcome outcome) const {
  return std::ranges::any_of(
      workers_, [&](const auto& entry) { return entry.second.outcome == outcome && was_last(entry.first); });
}

Outcome Coordinator::verdict() const {
  if (is_hopeless()) return Outcome::failed;
  if (!over()) return Outcome::running;
  if (said_) return wire::outcome_in(said_->outcome);
  if (anybody_finished() || planted("failure-is-finished")) return Outcome::finished;
  return stopping() || any_member(Outcome::stopped) ? Outcome::stopped : Outcome::failed;
}

std::string Coordinator::reason_of_failure() const {
  std::string ends;
  std::size_t others = 0;
  for (const auto& member : view_.members) {
    const auto& worker = workers_.at(member.id);
    auto how = worker.words.empty() ? "it is gone" : worker.words;
    if (worker.goodbye) how = fmt::format("it {}", worker.outcome == Outcome::failed ? "failed" : "left");
    auto one = fmt::format("{}worker {}: {}", ends.empty() ? "" : ", ", member.id, how);
    if (ends.size() + one.size() > wire::kMaxText / 2)
      ++others;
    else
      ends += one;
  }
  if (others) ends += fmt::format(" and {} more", others);
  return fmt::format("no worker is left that holds the state of the training ({}); {}", ends, no_rescue_);
}

std::string Coordinator::describe() const {
  auto names = [](std::initializer_list<std::pair<const char*, bool>> facts) {
    std::string text;
    for (auto [name, holds] : facts)
      if (holds) text += fmt::format(" {}", name);
    return text;
  };
  auto text = fmt::format("view {} of term {}, wanted {}, restarts {}, newest of the dead {}, trained in {}:{}\n",
                          view_.epoch, view_.term, wanted_, restarts_, newest_of_the_dead(), trained_in(),
                          names({{"leading", leading_},
                                 {"planned", plan_.has_value()},
                                 {"all-gone", all_gone()},
                                 {"may-know-more", may_know_more()},
                                 {"may-have-switched", may_have_switched()},
                                 {"lost", lost()},
                                 {"needs-checkpoint", needs_checkpoint()},
                                 {"said", said_.has_value()},
                                 {"over", over()}}));
  for (const auto& [id, worker] : workers_)
    text += fmt::format("worker {} on '{}', view {}, last view {}, {}:{}\n", id, worker.host, worker.view,
                        worker.last_view.epoch, name_of(worker.outcome),
                        names({{"member", in_view(id)},
                               {"connected", worker.link != 0},
                               {"named", worker.named},
                               {"ready", worker.ready},
                               {"invited", worker.invited},
                               {"goodbye", worker.goodbye},
                               {"ended", worker.ended},
                               {"counted", worker.counted},
                               {"left", worker.left},
                               {"may-be-member", may_be_member(id)},
                               {"may-decide", may_decide(worker)}}));
  for (const auto& [host, agent] : agents_)
    text +=
        fmt::format("agent of '{}', {} slots:{}\n", host, agent.slots,
                    names({{"connected", agent.link != 0}, {"complete", agent.complete}, {"told", agent.told_over}}));
  return text;
}

/// After the newest view: an agent that hears of one later takes the end back.
void Coordinator::tell_agents_over(const wire::Over& over) {
  tell_agents();
  for (auto& [host, agent] : agents_)
    if (agent.link && agent.complete && !std::exchange(agent.told_over, true)) send(agent.link, over);
}

}  // namespace pliant::membership
