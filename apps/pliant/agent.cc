#include "apps/pliant/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "base/log.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kLoneliness = 30s;  // of an agent without workers, far from a coordinator that does not answer
constexpr Nanos kBetweenScans = 100ms;
constexpr std::size_t kLastWords = 10;

std::string format_age(Nanos age) {
  return age < 60s ? fmt::format("{:.1f} s", seconds(age)) : format_span(seconds(age));
}

std::string plural(int count) { return fmt::format("{} worker{}", count, count == 1 ? "" : "s"); }

/// What happened, after the worker's name.
std::string deed_of(const Ending& ending) {
  if (ending.unknown) return "has ended (" + ending.words() + ")";
  if (ending.good()) return "ended with status 0 before its loop was finished, which counts as a failure";
  return ending.signal ? fmt::format("was killed by signal {}", ending.signal)
                       : fmt::format("ended with exit code {}", ending.code);
}

/// Never that of a job that was stopped by a signal.
int status_of_failure(const Ending& ending) {
  bool like_a_stop = ending.signal == SIGINT || ending.signal == SIGTERM || ending.signal == SIGHUP;
  return like_a_stop ? 1 : std::max(ending.exit_status(), 1);
}

}  // namespace

int Agent::run() {
  if (auto started = start(); !started.ok())
    return job_.attached() ? let_go(started.error()) : abandon(started.error());
  loop_.every(record().plan.wanted <= 64 ? 20ms : 100ms, [this] { tick(); });
  loop_.run();
  if (cannot_start_) return abandon(*cannot_start_);

  keeper_->end();
  console_.erase();
  events_.note("over", std::string(name_of(verdict_.outcome())));
  if (!record().is_part()) reporter_.finish(record().name, verdict_.outcome(), snapshot());
  if (!record().is_part()) reporter_.present(news_.account().words(seconds(clock_.now())), events_);
  console_.flush();
  return verdict_.exit_status();
}

void Agent::tick() {
  auto now = clock_.now();
  workers_.copy_output();
  console_.flush();
  if (phase_ == Phase::settling) return settle();
  give_up_on_explanations();
  kill_overdue();
  if (countdown_.end_due(now)) {
    countdown_.call_off_end();
    report_failure();
    say(fmt::format("pliant: stopping the other {} of {} workers\n", workers_.alive(), workers_.all().size()));
    end_workers();
  }
  if (countdown_.kill_due(now)) kill_workers();
  if (workers_.alive() == 0 && !is_needed()) return begin_settling();
  reporter_.update(now, snapshot());
}

void Agent::reap() {
  deaths_.next_turn();
  for (auto* worker : workers_.reap()) on_end(*worker);
  if (workers_.alive() == 0 && phase_ != Phase::settling && !is_needed()) begin_settling();
}

/// Of several hosts one may be without workers for a while; and so may a job whose coordinator is about to say that it
/// is over, or to ask for others. Before the first view that is so only until the first ones are started, of which some
/// may be faster at their end than the others at their beginning.
bool Agent::is_needed() const {
  if (phase_ != Phase::running || news_.is_over()) return false;
  auto missed = keeper_->missed_for();
  if (record().is_part()) return !missed || *missed < kLoneliness;
  // The coordinator says what follows. It may not have said yet that a job has begun which another agent had.
  if (news_.has_begun() || job_.attached()) return !missed || *missed < Deaths::kLastWord;
  bool awaits_more = workers_.all().size() < record().plan.wanted;
  return awaits_more && deaths_.all().empty();
}

void Agent::on_end(Worker& worker) {
  const auto& ending = *worker.process.ending();
  log::debug("worker {} ended: {}", worker.id, ending.words());
  events_.note("ended", worker.id, ending.words());
  tell_end(worker);
  bool told_to = phase_ == Phase::stopping || countdown_.told() || worker.leave_by;
  if (ending.good() || told_to) return;
  auto now = clock_.now();
  auto death = deaths_.make(worker.id, ending, now - worker.started);
  if (!ending.unknown) return on_death(death);
  deaths_.leave_open(death, now);
}

void Agent::on_death(const Death& death) {
  deaths_.add(death);
  if (phase_ != Phase::running) return;
  if (news_.has_begun()) return announce(death);
  if (record().is_part()) return;  // the coordinator says what follows
  phase_ = Phase::ending;
  countdown_.end_at(clock_.now() + kPatience);
}

/// A worker that ended with status 0 said nothing of the end of its loop.
void Agent::name_early_exit(std::uint64_t id) {
  const auto* worker = workers_.find(id);
  bool told_to = phase_ == Phase::stopping || countdown_.told() || (worker && worker->leave_by);
  if (!worker || told_to || worker->process.running() || !worker->process.ending()->good() || !news_.has_begun())
    return;
  on_death(deaths_.make(id, *worker->process.ending(), clock_.now() - worker->started));
}

void Agent::give_up_on_explanations() {
  while (auto death = deaths_.overdue(clock_.now())) on_death(*death);
}

void Agent::announce(const Death& death) {
  // Those who wait to be taken in hold nothing of the job.
  auto left = static_cast<int>(std::ranges::count_if(news_.state().view.members, [&](const auto& member) {
    const auto* worker = workers_.find(member.id);
    return worker ? worker->process.running() : record().is_part();  // those elsewhere count too
  }));
  if (left <= 0) return;  // what follows is the coordinator's to say
  say(fmt::format("pliant: {}worker {} {}; {} go{} on\n", record().where(), death.id, deed_of(death.ending),
                  plural(left), left == 1 ? "es" : ""));
}

void Agent::on_signal(int number) {
  if (phase_ == Phase::running) {
    verdict_.interrupt(number);
    phase_ = Phase::stopping;
    stopping_since_ = clock_.now();
    if (!record().is_part()) keeper_->send(wire::Stop{});  // the coordinator shall not take it for a failure
    if (workers_.alive() == 0) return begin_settling();
    if (number != SIGQUIT) {
      say(fmt::format("pliant: stopping {}{}\n", plural(workers_.alive()),
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
  kill_workers();
}

/// Whoever goes now does not go because the job needs fewer.
void Agent::end_workers() {
  supply_.close();
  if (record().is_part()) announce_slots();
  workers_.signal(SIGTERM);
  workers_.signal(SIGCONT);  // a stopped process would not see the first
  countdown_.kill_at(clock_.now() + options_.grace);
}

void Agent::kill_workers() {
  workers_.signal(SIGKILL);
  countdown_.kill_at(clock_.now());
}

void Agent::report_failure() {
  if (std::exchange(reported_, true)) return;
  workers_.copy_output();
  // In a job that survives its workers, only the end of the last ones is the job's.
  auto last = deaths_.all();
  std::erase_if(last, [this](const Death& death) { return !news_.in_view(death.id); });
  auto blamed = first_to_blame(last.empty() ? deaths_.all() : last);
  verdict_.fail(blamed ? status_of_failure(blamed->ending) : 1);
  if (!blamed && record().is_part()) return;
  auto reason = news_.reason();
  auto why = reason.empty() ? std::string("no worker has finished it") : reason;
  if (!blamed) return say(fmt::format("pliant: job '{}' failed: {}\n", record().name, why));
  auto text = fmt::format("pliant: {}job '{}' failed: worker {} ended after {}: {}\n", record().where(),
                          record().job_name(), blamed->id, format_age(blamed->after), blamed->ending.words());
  const auto& worker = *workers_.find(blamed->id);
  auto words = last_lines(worker.err, kLastWords);
  bool from_err = !words.empty();
  if (!from_err) words = last_lines(worker.out, kLastWords);
  if (!words.empty())
    text += fmt::format("pliant: last words of worker {} ({}):\n", blamed->id, from_err ? "stderr" : "stdout");
  for (const auto& line : words) text += fmt::format("    {}\n", line);
  if (!reason.empty() && news_.has_begun()) text += fmt::format("pliant: {}\n", why);
  say(text);
}

// ---- the end ----

void Agent::begin_settling() {
  if (phase_ == Phase::ending) report_failure();
  judged_ = phase_ != Phase::running;
  if (verdict_.interrupted()) countdown_.leave_at(clock_.now() + kPatience);
  phase_ = Phase::settling;
  countdown_.call_off_end();
  settle();
}

bool Agent::judged() {
  if (!coordinator_is_done()) return false;
  if (std::exchange(judged_, true)) {
    // Told to stop, but the work was done by then.
    if (verdict_.interrupted() && news_.outcome_or(Outcome::stopped) == Outcome::finished)
      verdict_.finish();
    else if (verdict_.open())
      verdict_.stop();
    return true;
  }
  if (record().is_part()) return judge_part();
  give_up_on_explanations();
  judged_ = !deaths_.any_open();
  if (judged_) conclude(judgement());
  return judged_;
}

/// The coordinator's word; without one, what the workers have written down. The exit codes of a job that never began
/// are all there is to know of it.
Outcome Agent::judgement() const {
  bool all_good = true, perhaps = false, known = false;
  auto said = news_.outcome_or(Outcome::failed);
  for (const auto& worker : workers_.all()) {
    const auto& ending = *worker.process.ending();
    all_good = all_good && ending.good();
    if (!news_.in_view(worker.id)) continue;
    known = true;
    perhaps = perhaps || ending.good() || ending.unknown;
    if (!news_.is_over() && note_of(worker.id).outcome == Outcome::finished) said = Outcome::finished;
  }
  if (!news_.has_begun()) return all_good && !job_.attached() ? Outcome::finished : Outcome::failed;
  // The program has the last word: what follows its loop may fail.
  return said == Outcome::finished && known && !perhaps ? Outcome::failed : said;
}

void Agent::conclude(Outcome outcome) {
  verdict_.hear(outcome);
  if (outcome == Outcome::failed) report_failure();
  if (outcome == Outcome::stopped) verdict_.stop();
}

/// It has said how the job ended, or of one that never began, all that the workers had to say; or it takes too long.
bool Agent::coordinator_is_done() {
  keeper_->drain();
  bool done = news_.has_begun() ? news_.is_over() : deaths_.all_answered();
  return done || clock_.now() >= std::max(deaths_.told_at(), started_) + Deaths::kLastWord;
}

bool Agent::judge_part() {
  auto said = news_.outcome_or(Outcome::failed);
  verdict_.hear(said);
  if (said == Outcome::finished || said == Outcome::stopped) return true;
  verdict_.blame(1);
  if (!deaths_.all().empty())
    report_failure();
  else if (!news_.is_over())
    say(fmt::format("pliant: {}job '{}' cannot be reached any more\n", record().where(), record().job));
  return true;
}

void Agent::settle() {
  if (!judged() || !leftovers_gone()) return;
  if (output_copied() || countdown_.leave_due(clock_.now())) loop_.stop();
}

bool Agent::leftovers_gone() {
  auto now = clock_.now();
  if (leftovers_gone_ || now < next_scan_) return leftovers_gone_;
  next_scan_ = now + kBetweenScans;
  auto left = workers_.leftovers();
  leftovers_gone_ = left.empty();
  if (leftovers_gone_) return true;

  if (!countdown_.ends()) countdown_.end_at(now + kPatience);
  int signal = countdown_.kill_due(now) ? SIGKILL : 0;
  if (!countdown_.told() && countdown_.end_due(now)) {
    signal = SIGTERM;
    countdown_.kill_at(now + options_.grace);
  }
  for (const auto& process : left)
    if (auto pidfd = open_process(process); signal && pidfd.ok()) signal_process(pidfd.value(), signal);
  return false;
}

bool Agent::output_copied() {
  bool all = workers_.drain_output();
  console_.flush();
  return all && console_.idle();
}

// ---- what it looks like ----

session::WorkerNote Agent::note_of(std::uint64_t id) const {
  return session::read_worker_note(note_file(job_.path(), id));
}

wire::Ended Agent::ended_of(std::uint64_t id, bool good, const std::string& words) const {
  auto note = note_of(id);
  wire::Ended ended{id, static_cast<std::uint8_t>(good), words};
  ended.view = note.view;
  ended.outcome = static_cast<std::uint8_t>(note.outcome);
  return ended;
}

Snapshot Agent::snapshot() const {
  Snapshot now;
  const auto& state = news_.state();
  bool formed = news_.has_begun();
  bool some_wait = !formed && state.spare > 0;
  now.phase = phase_ == Phase::running ? (some_wait ? "starting" : "running")
                                       : (phase_ == Phase::stopping ? "stopping" : "ending");
  now.alive = workers_.alive();
  if (formed)
    now.alive = static_cast<int>(std::ranges::count_if(state.view.members, [&](const auto& member) {
      const auto* worker = workers_.find(member.id);
      return worker && worker->process.running();
    }));
  now.elapsed = clock_.now() - started_;
  now.at = unix_seconds();
  news_.describe(now, clock_.now(), phase_ == Phase::running);
  return now;
}

void Agent::say(const std::string& lines) { console_.write(Stream::err, lines); }

}  // namespace pliant::cli
