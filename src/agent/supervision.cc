#include "agent/supervision.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/log.h"

namespace pliant::agent {
namespace {

std::string plural(int count) { return fmt::format("{} worker{}", count, count == 1 ? "" : "s"); }

/// What happened, after the worker's name.
std::string deed_of(const Ending& ending) {
  if (ending.unknown) return "has ended (" + ending.words() + ")";
  if (ending.good()) return "ended with status 0 before its loop was finished, which counts as a failure";
  return ending.signal ? fmt::format("was killed by signal {}", ending.signal)
                       : fmt::format("ended with exit code {}", ending.code);
}

}  // namespace

Supervision::Supervision(const Clock& clock, SupervisionOptions options, Driver& driver)
    : clock_(clock), options_(std::move(options)), driver_(driver), began_(clock.now()), word_(options_.wanted) {}

void Supervision::take_up(std::uint64_t id, pid_t pid) { workers_.push_back({id, pid, clock_.now()}); }

const Charge* Supervision::find(std::uint64_t id) const {
  auto at = std::ranges::find(workers_, id, &Charge::id);
  return at == workers_.end() ? nullptr : &*at;
}

Charge* Supervision::charge(std::uint64_t id) {
  auto at = std::ranges::find(workers_, id, &Charge::id);
  return at == workers_.end() ? nullptr : &*at;
}

int Supervision::alive() const { return static_cast<int>(std::ranges::count_if(workers_, &Charge::running)); }

bool Supervision::was_told(const Charge& worker) const {
  return phase_ == Phase::stopping || countdown_.told() || worker.leave_by;
}

void Supervision::on_time() {
  if (phase_ == Phase::settling) return;
  auto now = clock_.now();
  give_up_on_explanations();
  kill_overdue();
  send_away_left_behind();
  if (countdown_.end_due(now)) {
    countdown_.call_off_end();
    report_failure();
    driver_.say(fmt::format("pliant: stopping the other {} of {} workers\n", alive(), workers_.size()));
    end_workers();
  }
  if (countdown_.kill_due(now)) kill_workers();
  if (alive() == 0 && !is_needed()) begin_settling();
}

// ---- workers that end ----

void Supervision::on_ended(const std::vector<End>& ends) {
  deaths_.next_turn();
  for (const auto& end : ends) {
    auto* worker = charge(end.id);
    if (!worker || worker->ending) continue;
    worker->ending = end.ending;
    on_end(*worker);
  }
  if (alive() == 0 && phase_ != Phase::settling && !is_needed()) begin_settling();
}

void Supervision::on_end(Charge& worker) {
  const auto& ending = *worker.ending;
  log::debug("worker {} ended: {}", worker.id, ending.words());
  driver_.note("ended", worker.id, ending.words());
  tell_end(worker);
  if (ending.good() || was_told(worker)) return;
  auto now = clock_.now();
  auto death = deaths_.make(worker.id, ending, now - worker.started);
  if (!ending.unknown) return on_death(death);
  deaths_.leave_open(death, now);
}

void Supervision::on_death(const Death& death) {
  deaths_.add(death);
  if (phase_ != Phase::running) return;
  if (word_.has_begun() || options_.attached) return announce(death);
  if (options_.part) return;  // the coordinator says what follows
  phase_ = Phase::ending;
  countdown_.end_at(clock_.now() + kPatience);
}

/// A worker that ended with status 0 said nothing of the end of its loop.
void Supervision::name_early_exit(std::uint64_t id) {
  const auto* worker = find(id);
  if (!worker || was_told(*worker) || worker->running() || !worker->ending->good() || !word_.has_begun()) return;
  on_death(deaths_.make(id, *worker->ending, clock_.now() - worker->started));
}

void Supervision::give_up_on_explanations() {
  while (auto death = deaths_.overdue(clock_.now())) on_death(*death);
}

void Supervision::announce(const Death& death) {
  // Those who wait to be taken in hold nothing of the job.
  auto left = static_cast<int>(std::ranges::count_if(word_.state().view.members, [&](const auto& member) {
    const auto* worker = find(member.id);
    return worker ? worker->running() : options_.part;  // those elsewhere count too
  }));
  if (left <= 0) return;  // what follows is the coordinator's to say
  driver_.say(fmt::format("pliant: {}worker {} {}; {} go{} on\n", options_.where(), death.id, deed_of(death.ending),
                          plural(left), left == 1 ? "es" : ""));
}

// ---- signals ----

void Supervision::on_signal(int number) {
  if (phase_ == Phase::running) {
    verdict_.interrupt(number);
    phase_ = Phase::stopping;
    stopping_since_ = clock_.now();
    ask_to_stop(number == SIGQUIT ? wire::Stopping::at_once : wire::Stopping::in_order);
    if (alive() == 0) return begin_settling();
    if (number != SIGQUIT) {
      driver_.say(fmt::format("pliant: stopping {}{}\n", plural(alive()),
                              number == SIGINT ? " (Ctrl-C again kills them at once)" : ""));
      return end_workers();
    }
  }
  if (phase_ == Phase::ending && !countdown_.told() && number != SIGQUIT) {
    countdown_.end_at(clock_.now());  // no need to wait for the others
    return;
  }
  if (phase_ == Phase::settling) countdown_.leave_at(clock_.now());
  // Slurm may say it twice: once to everybody, once to the agent.
  if (phase_ == Phase::stopping && number == SIGTERM && clock_.now() < stopping_since_ + kPatience) return;
  if (verdict_.interrupted()) ask_to_stop(wire::Stopping::at_once);
  kill_workers();
}

void Supervision::on_notice() {
  if (phase_ == Phase::running) on_signal(SIGTERM);
}

void Supervision::signal_all(int number) {
  for (const auto& worker : workers_)
    if (worker.running()) driver_.signal(worker.id, number);
}

/// Whoever goes now does not go because the job needs fewer.
void Supervision::end_workers() {
  slots_ = 0;
  if (options_.part) announce_slots();
  signal_all(SIGTERM);
  signal_all(SIGCONT);  // a stopped process would not see the first
  countdown_.kill_at(clock_.now() + options_.grace);
}

void Supervision::kill_workers() {
  signal_all(SIGKILL);
  countdown_.kill_at(clock_.now());
}

// ---- slots ----

void Supervision::on_slots(std::uint32_t slots) {
  if (phase_ != Phase::running) return;  // nobody needs any more
  slots_ = slots;
  announce_slots();
  send_away_surplus();
}

void Supervision::announce_slots() { driver_.send(hello()); }

/// Those who only wait go first, then the youngest.
void Supervision::send_away_surplus() {
  std::vector<Charge*> there;
  for (auto& worker : workers_)
    if (worker.running() && !worker.leave_by) there.push_back(&worker);
  std::ranges::sort(there, [this](const Charge* a, const Charge* b) {
    return std::pair(word_.in_view(a->id), b->id) < std::pair(word_.in_view(b->id), a->id);
  });
  for (auto surplus = there.size() > slots_ ? there.size() - slots_ : 0, i = std::size_t{0}; i < surplus; ++i) {
    send_away(*there[i]);
    driver_.note("taken", there[i]->id, "its slot is not there any more");
  }
}

/// The others went on without it, or never took it in, and have finished: whatever it waits for will not come. Members
/// of the last view, and workers whose loop has ended, may be busy with what follows their loop, and end by themselves.
void Supervision::send_away_left_behind() {
  if (phase_ != Phase::running || !word_.is_over() || clock_.now() < over_since_ + kPatience) return;
  for (auto& worker : workers_) {
    if (!worker.running() || worker.leave_by || word_.in_view(worker.id)) continue;
    if (driver_.note_of(worker.id).outcome == Outcome::running) send_away(worker);
  }
}

void Supervision::send_away(Charge& worker) {
  driver_.signal(worker.id, SIGTERM);
  driver_.signal(worker.id, SIGCONT);  // a stopped process would not see the first
  worker.leave_by = clock_.now() + options_.grace;
}

void Supervision::kill_overdue() {
  for (const auto& worker : workers_)
    if (worker.leave_by && clock_.now() >= *worker.leave_by && worker.running()) driver_.signal(worker.id, SIGKILL);
}

}  // namespace pliant::agent
