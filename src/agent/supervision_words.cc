// What a supervision hears from the coordinator, and says to it.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/supervision.h"

namespace pliant::agent {

wire::AgentHello Supervision::hello() const { return {options_.job, options_.host, slots_, options_.kind}; }

/// The second hello says that this is all.
void Supervision::on_connected() {
  driver_.send(hello());
  told_now_.clear();
  stop_.tell_again();
  tell_stop();
  for (const auto& worker : missed_) {
    driver_.send(wire::Started{worker.id, worker.pid});
    auto ended = ended_of(worker.id, {.unknown = true}, "it ended while there was no agent");
    ended.taken = static_cast<std::uint8_t>(worker.told);  // proof, once more; an earlier coordinator has counted it
    driver_.send(ended);
  }
  for (const auto& worker : workers_) {
    if (worker.running())
      driver_.send(wire::Started{worker.id, worker.pid});
    else if (!worker.heard_of)
      tell_end(worker);
  }
  driver_.send(hello());
}

wire::Ended Supervision::ended_of(std::uint64_t id, const Ending& ending, const std::string& words) const {
  auto note = driver_.note_of(id);
  wire::Ended ended{id, static_cast<std::uint8_t>(ending.good()), words};
  ended.view = note.view;
  ended.outcome = static_cast<std::uint8_t>(note.last_word(ending.by_itself()));
  return ended;
}

void Supervision::tell_end(const Charge& worker) {
  auto ended = ended_of(worker.id, *worker.ending, worker.ending->words());
  ended.taken = static_cast<std::uint8_t>(worker.leave_by.has_value());
  deaths_.told(worker.id, driver_.send(ended), clock_.now());
}

void Supervision::on_message(const wire::Message& message) {
  if (const auto* wish = std::get_if<wire::Start>(&message)) return start_worker(wish->id);
  if (const auto* state = std::get_if<wire::JobState>(&message)) return on_state(*state);
  if (const auto* parted = std::get_if<wire::Parted>(&message)) return on_parted(*parted);
  if (const auto* over = std::get_if<wire::Over>(&message)) return on_over(*over);
  if (const auto* stop = std::get_if<wire::Stop>(&message)) return on_stop(*stop);
  if (const auto* refusal = std::get_if<wire::Refusal>(&message)) return on_refusal(*refusal);
}

void Supervision::on_parted(const wire::Parted& parted) {
  deaths_.answered(parted.id);
  told_now_.insert(parted.id);
  std::erase_if(missed_, [&](const Missed& worker) { return worker.id == parted.id; });
  auto* worker = charge(parted.id);
  if (worker ? worker->heard_of : former_.contains(parted.id)) return;  // an earlier coordinator has said it
  if (worker) {
    worker->heard_of = true;
    worker->plans_until = word_.state().view.epoch + 1;
  }
  driver_.note_told(parted.id);
  if (auto death = deaths_.explain(parted.id, parted.goodbye != 0)) on_death(*death);
  if (!parted.goodbye) name_early_exit(parted.id);
}

void Supervision::start_worker(std::uint64_t id) {
  if (phase_ != Phase::running || find(id) || former_.contains(id) || cannot_start_) return;
  auto started = driver_.start(id);
  if (started.ok()) {
    workers_.push_back({id, started.value(), clock_.now()});
    driver_.send(wire::Started{id, started.value()});
    driver_.note("started", id, fmt::format("process {}", started.value()));
    return;
  }
  if (options_.attached || options_.part || word_.has_begun()) {  // those who run are not concerned
    driver_.say(fmt::format("pliant: {}{}\n", options_.where(), started.error().message));
    driver_.send(wire::Ended{id, 0, started.error().message});
    return;
  }
  cannot_start_ = started.error();
}

/// A coordinator that did not get its predecessor's last memory takes members for alive of whose end that one had
/// heard.
void Supervision::tell_again(const wire::ViewNotice& view) {
  for (const auto& member : view.members) {
    const auto* worker = find(member.id);
    bool known = worker ? !worker->running() && worker->heard_of : former_.contains(member.id);
    if (!known || !told_now_.insert(member.id).second) continue;
    auto ended = worker ? ended_of(member.id, *worker->ending, worker->ending->words())
                        : wire::Ended{.id = member.id, .words = "it ended before"};
    if (!worker) ended.view = former_view_;
    ended.taken = 1;  // it has been counted
    driver_.send(ended);
  }
}

void Supervision::on_state(const wire::JobState& state) {
  tell_again(state.view);
  auto news = word_.on_state(state);
  if (news == StateNews::again && !options_.part) driver_.say(restart_line(state.view));
  if (news != StateNews::nothing && word_.is_over()) {
    word_.take_back_over();
    resume();
  }
  // Whoever failed did so in a job that had begun: the others know how to go on.
  if (news == StateNews::first && resume())
    for (const auto& death : deaths_.all()) announce(death);
  if (news != StateNews::nothing && phase_ == Phase::running) forget();
}

bool Supervision::may_be_forgotten(const Charge& worker) const {
  const auto& view = word_.state().view;
  if (worker.running() || !worker.heard_of || view.planned <= worker.plans_until) return false;
  auto note = driver_.note_of(worker.id);
  return !word_.in_view(worker.id) && note.outcome != Outcome::finished && note.view.epoch <= view.epoch;
}

void Supervision::forget() {
  std::vector<std::uint64_t> ids;
  for (const auto& worker : workers_)
    if (may_be_forgotten(worker)) ids.push_back(worker.id);
  for (auto id : ids) {
    former_.add(id);
    former_view_ = std::max(former_view_, driver_.note_of(id).view.epoch);
    deaths_.forget(id);
    told_now_.erase(id);
    driver_.forget(id);
    std::erase_if(workers_, [&](const Charge& worker) { return worker.id == id; });
  }
}

/// It was about to end: it goes on, unless its workers were told to end already.
bool Supervision::resume() {
  if (phase_ != Phase::ending || countdown_.told()) return false;
  phase_ = Phase::running;
  countdown_.call_off_end();
  return true;
}

void Supervision::on_over(const wire::Over& over) {
  if (!word_.is_over()) over_since_ = clock_.now();
  word_.on_over(over);
  if (wire::outcome_in(over.outcome) != Outcome::failed || !options_.part || phase_ != Phase::running) return;
  phase_ = Phase::ending;  // those who wait are told as well: give them the time to go by themselves
  countdown_.end_at(clock_.now() + kPatience);
}

/// The job is stopped from elsewhere, or was when another agent had it. Of a part, the exit status is not the job's.
void Supervision::on_stop(const wire::Stop& stop) {
  if (phase_ == Phase::settling) return;
  stop_.ask(wire::stopping_in(stop));
  if (phase_ != Phase::stopping) {
    verdict_.interrupt(options_.part ? 0 : SIGTERM);
    phase_ = Phase::stopping;
    stopping_since_ = clock_.now();
    if (!stop.force) end_workers();
  }
  if (stop.force) kill_workers();
}

/// The coordinator shall not take it for a failure; and it tells agents that come later how the end was asked for.
void Supervision::ask_to_stop(wire::Stopping how) {
  stop_.ask(how);
  tell_stop();
}

/// Who ends a part of the job does not end the others.
void Supervision::tell_stop() {
  if (auto stop = stop_.untold(); stop && !options_.part && driver_.send(*stop)) stop_.told();
}

void Supervision::on_refusal(const wire::Refusal& refusal) {
  if (!std::exchange(refused_, true))
    driver_.say(fmt::format("pliant: the coordinator refuses this agent: {}\n", printable(refusal.reason)));
}

void Supervision::on_hopeless(const Error& error) {
  if (phase_ == Phase::settling) return;
  driver_.say(fmt::format("pliant: job '{}' failed: {}\n", options_.name, error.message));
  reported_ = true;
  verdict_.fail(1);
  phase_ = Phase::stopping;
  end_workers();
  if (alive() == 0) begin_settling();
}

std::string restart_line(const wire::ViewNotice& view) {
  return fmt::format(
      "pliant: no worker was left that held the state of the training: going on from the checkpoint of step {} with {} "
      "worker{}\n",
      view.resume_step, view.members.size(), view.members.size() == 1 ? "" : "s");
}

}  // namespace pliant::agent
