#include "apps/pliant/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "base/log.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kLastWord = 2s;     // for the coordinator to say how a worker ended, where nobody else can
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
  if (auto started = start(); !started.ok()) return attached_ ? let_go(started.error()) : abandon(started.error());
  loop_.every(record_.plan.wanted <= 64 ? 20ms : 100ms, [this] { tick(); });
  loop_.run();
  if (cannot_start_) return abandon(*cannot_start_);

  keeper_->end();
  console_.erase();
  events_.note("over", std::string(name_of(outcome_)));
  if (!record_.is_part()) reporter_.finish(record_.name, outcome_, snapshot());
  if (!record_.is_part()) reporter_.present(account_.words(seconds(clock_.now())), events_);
  console_.flush();
  return exit_status_;
}

void Agent::tick() {
  auto now = clock_.now();
  workers_.copy_output();
  console_.flush();
  if (phase_ == Phase::settling) return settle();
  give_up_on_explanations();
  kill_overdue();
  if (end_at_ && now >= *end_at_) {
    end_at_.reset();
    report_failure();
    say(fmt::format("pliant: stopping the other {} of {} workers\n", workers_.alive(), workers_.all().size()));
    end_workers();
  }
  if (kill_at_ && now >= *kill_at_) kill_workers();
  if (workers_.alive() == 0 && !is_needed()) return begin_settling();
  reporter_.update(now, snapshot());
}

void Agent::reap() {
  ++turn_;  // all deaths of one look count as simultaneous
  for (auto* worker : workers_.reap()) on_end(*worker);
  if (workers_.alive() == 0 && phase_ != Phase::settling && !is_needed()) begin_settling();
}

/// Of several hosts one may be without workers for a while; and so may a job whose coordinator is about to say that it
/// is over, or to ask for others. Before the first view that is so only until the first ones are started, of which some
/// may be faster at their end than the others at their beginning.
bool Agent::is_needed() const {
  if (phase_ != Phase::running || over_) return false;
  auto missed = keeper_->missed_for();
  if (record_.is_part()) return !missed || *missed < kLoneliness;
  if (has_begun()) return !missed || *missed < kLastWord;  // the coordinator says what follows
  bool awaits_more = !attached_ && workers_.all().size() < record_.plan.wanted;
  return awaits_more && deaths_.empty();
}

/// There was a view: how the job ends is not a matter of exit codes alone.
bool Agent::has_begun() const { return state_.view.epoch > 0; }

void Agent::on_end(Worker& worker) {
  const auto& ending = *worker.process.ending();
  log::debug("worker {} ended: {}", worker.id, ending.words());
  events_.note("ended", worker.id, ending.words());
  tell_end(worker);
  bool told_to = phase_ == Phase::stopping || kill_at_ || worker.leave_by;
  if (ending.good() || told_to) return;
  Death death{worker.id, ending, turn_, clock_.now() - worker.started};
  if (!ending.unknown) return on_death(death);
  unexplained_.push_back(death);
}

void Agent::on_death(const Death& death) {
  deaths_.push_back(death);
  if (phase_ != Phase::running) return;
  if (state_.view.epoch > 0) return announce(deaths_.back());
  if (record_.is_part()) return;  // the coordinator says what follows
  phase_ = Phase::ending;
  end_at_ = clock_.now() + kPatience;
}

/// By the coordinator's word, a process that an earlier agent started has left in good order, or it died.
void Agent::explain_end(std::uint64_t id, bool goodbye) {
  auto same = [&](const Death& death) { return death.id == id; };
  auto at = std::ranges::find_if(unexplained_, same);
  if (at == unexplained_.end()) return;
  auto death = *at;
  unexplained_.erase(at);
  if (goodbye)
    said_goodbye_.insert(id);
  else
    on_death(death);
}

/// A worker that ended with status 0 said nothing of the end of its loop.
void Agent::name_early_exit(std::uint64_t id) {
  const auto* worker = workers_.find(id);
  bool told_to = phase_ == Phase::stopping || kill_at_ || (worker && worker->leave_by);
  if (!worker || told_to || worker->process.running() || !worker->process.ending()->good() || !has_begun()) return;
  on_death({id, *worker->process.ending(), turn_, clock_.now() - worker->started});
}

void Agent::give_up_on_explanations() {
  while (!unexplained_.empty()) {
    const auto& death = unexplained_.front();
    if (clock_.now() < workers_.find(death.id)->started + death.after + kLastWord) return;
    explain_end(death.id, false);
  }
}

void Agent::announce(const Death& death) {
  // Those who wait to be taken in hold nothing of the job.
  auto left = static_cast<int>(std::ranges::count_if(state_.view.members, [&](const auto& member) {
    const auto* worker = workers_.find(member.id);
    return worker ? worker->process.running() : record_.is_part();  // those elsewhere count too
  }));
  if (left <= 0) return;  // what follows is the coordinator's to say
  say(fmt::format("pliant: {}worker {} {}; {} go{} on\n", where(), death.id, deed_of(death.ending), plural(left),
                  left == 1 ? "es" : ""));
}

void Agent::on_signal(int number) {
  if (phase_ == Phase::running) {
    interrupted_ = true;
    exit_status_ = 128 + number;
    phase_ = Phase::stopping;
    stopping_since_ = clock_.now();
    if (!record_.is_part()) keeper_->send(wire::Stop{});  // the coordinator shall not take it for a failure
    if (workers_.alive() == 0) return begin_settling();
    if (number != SIGQUIT) {
      say(fmt::format("pliant: stopping {}{}\n", plural(workers_.alive()),
                      number == SIGINT ? " (Ctrl-C again kills them at once)" : ""));
      return end_workers();
    }
  }
  if (phase_ == Phase::ending && !kill_at_ && number != SIGQUIT) {
    end_at_ = clock_.now();  // no need to wait for the others
    return;
  }
  if (phase_ == Phase::settling) leave_at_ = clock_.now();
  // Slurm may say it twice: once to everybody, once to the agent.
  if (phase_ == Phase::stopping && number == SIGTERM && clock_.now() < stopping_since_ + kPatience) return;
  kill_workers();
}

/// Whoever goes now does not go because the job needs fewer.
void Agent::end_workers() {
  slots_ = 0;
  if (record_.is_part()) announce_slots();
  workers_.signal(SIGTERM);
  workers_.signal(SIGCONT);  // a stopped process would not see the first
  kill_at_ = clock_.now() + options_.grace;
}

void Agent::kill_workers() {
  workers_.signal(SIGKILL);
  kill_at_ = clock_.now();
}

void Agent::report_failure() {
  if (std::exchange(reported_, true)) return;
  workers_.copy_output();
  // In a job that survives its workers, only the end of the last ones is the job's.
  auto last = deaths_;
  std::erase_if(last, [this](const Death& death) { return !in_view(death.id); });
  auto blamed = first_to_blame(last.empty() ? deaths_ : last);
  outcome_ = Outcome::failed;
  exit_status_ = blamed ? status_of_failure(blamed->ending) : 1;
  if (!blamed && record_.is_part()) return;
  auto why = over_ && !over_->reason.empty() ? printable(over_->reason) : std::string("no worker has finished it");
  if (!blamed) return say(fmt::format("pliant: job '{}' failed: {}\n", record_.name, why));
  auto text = fmt::format("pliant: {}job '{}' failed: worker {} ended after {}: {}\n", where(), record_.job_name(),
                          blamed->id, format_age(blamed->after), blamed->ending.words());
  const auto& worker = *workers_.find(blamed->id);
  auto words = last_lines(worker.err, kLastWords);
  bool from_err = !words.empty();
  if (!from_err) words = last_lines(worker.out, kLastWords);
  if (!words.empty())
    text += fmt::format("pliant: last words of worker {} ({}):\n", blamed->id, from_err ? "stderr" : "stdout");
  for (const auto& line : words) text += fmt::format("    {}\n", line);
  if (over_ && !over_->reason.empty() && has_begun()) text += fmt::format("pliant: {}\n", why);
  say(text);
}

// ---- the end ----

void Agent::begin_settling() {
  if (phase_ == Phase::ending) report_failure();
  judged_ = phase_ != Phase::running;
  if (interrupted_) leave_at_ = clock_.now() + kPatience;
  phase_ = Phase::settling;
  end_at_.reset();
  settle();
}

bool Agent::judged() {
  if (!coordinator_is_done()) return false;
  if (std::exchange(judged_, true)) {
    // Told to stop, but the work was done by then.
    bool finished = interrupted_ && over_ && wire::outcome_in(over_->outcome) == Outcome::finished;
    if (finished) exit_status_ = 0;
    if (outcome_ == Outcome::running) outcome_ = finished ? Outcome::finished : Outcome::stopped;
    return true;
  }
  if (record_.is_part()) return judge_part();
  give_up_on_explanations();
  judged_ = unexplained_.empty();
  if (judged_) conclude(verdict());
  return judged_;
}

/// The coordinator's word; without one, what the workers have written down. The exit codes of a job that never began
/// are all there is to know of it.
Outcome Agent::verdict() const {
  bool all_good = true, perhaps = false, known = false;
  auto said = over_ ? wire::outcome_in(over_->outcome) : Outcome::failed;
  for (const auto& worker : workers_.all()) {
    const auto& ending = *worker.process.ending();
    all_good = all_good && ending.good();
    if (!in_view(worker.id)) continue;
    known = true;
    perhaps = perhaps || ending.good() || ending.unknown;
    if (!over_ && note_of(worker.id).outcome == Outcome::finished) said = Outcome::finished;
  }
  if (!has_begun()) return all_good && !attached_ ? Outcome::finished : Outcome::failed;
  // The program has the last word: what follows its loop may fail.
  return said == Outcome::finished && known && !perhaps ? Outcome::failed : said;
}

void Agent::conclude(Outcome outcome) {
  outcome_ = outcome;
  if (outcome == Outcome::failed) report_failure();
  if (outcome == Outcome::stopped) exit_status_ = 128 + SIGTERM;
}

/// It has said how the job ended, or of one that never began, all that the workers had to say; or it takes too long.
bool Agent::coordinator_is_done() {
  keeper_->drain();
  bool done = has_begun() ? over_.has_value() : unanswered_.empty();
  return done || clock_.now() >= std::max(told_, started_) + kLastWord;
}

bool Agent::judge_part() {
  auto said = over_ ? wire::outcome_in(over_->outcome) : Outcome::running;
  outcome_ = over_ ? said : Outcome::failed;
  if (said == Outcome::finished || said == Outcome::stopped) return true;
  exit_status_ = 1;
  if (!deaths_.empty())
    report_failure();
  else if (!over_)
    say(fmt::format("pliant: {}job '{}' cannot be reached any more\n", where(), record_.job));
  return true;
}

void Agent::settle() {
  if (!judged() || !leftovers_gone()) return;
  bool enough = leave_at_ && clock_.now() >= *leave_at_;
  if (output_copied() || enough) loop_.stop();
}

bool Agent::leftovers_gone() {
  auto now = clock_.now();
  if (leftovers_gone_ || now < next_scan_) return leftovers_gone_;
  next_scan_ = now + kBetweenScans;
  auto left = workers_.leftovers();
  leftovers_gone_ = left.empty();
  if (leftovers_gone_) return true;

  if (!end_at_) end_at_ = now + kPatience;
  int signal = 0;
  if (kill_at_ && now >= *kill_at_) signal = SIGKILL;
  if (!kill_at_ && now >= *end_at_) {
    signal = SIGTERM;
    kill_at_ = now + options_.grace;
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

bool Agent::ended_well(const Worker& worker) const {
  const auto& ending = *worker.process.ending();
  return ending.good() || (ending.unknown && said_goodbye_.contains(worker.id));
}

session::WorkerNote Agent::note_of(std::uint64_t id) const {
  return session::read_worker_note(note_file(dir_.path(), id));
}

wire::Ended Agent::ended_of(std::uint64_t id, bool good, const std::string& words) const {
  auto note = note_of(id);
  wire::Ended ended{id, static_cast<std::uint8_t>(good), words};
  ended.view = note.view;
  ended.outcome = static_cast<std::uint8_t>(note.outcome);
  return ended;
}

bool Agent::in_view(std::uint64_t id) const {
  return std::any_of(state_.view.members.begin(), state_.view.members.end(),
                     [&](const auto& member) { return member.id == id; });
}

Snapshot Agent::snapshot() const {
  Snapshot now;
  bool formed = state_.view.epoch > 0;
  bool some_wait = !formed && state_.spare > 0;
  now.phase = phase_ == Phase::running ? (some_wait ? "starting" : "running")
                                       : (phase_ == Phase::stopping ? "stopping" : "ending");
  now.workers = static_cast<int>(state_.wanted);
  now.alive = workers_.alive();
  if (formed)
    now.alive =
        static_cast<int>(std::count_if(state_.view.members.begin(), state_.view.members.end(), [&](const auto& member) {
          const auto* worker = workers_.find(member.id);
          return worker && worker->process.running();
        }));
  now.elapsed = clock_.now() - started_;
  now.at = unix_seconds();
  now.progress = progress_;
  if (phase_ == Phase::running) now.seconds_left = pace_.seconds_left(clock_.now());
  now.bill = account_.lines(seconds(clock_.now()));
  return now;
}

std::string Agent::where() const { return record_.is_part() ? fmt::format("host {}: ", record_.host.name) : ""; }

void Agent::say(const std::string& lines) { console_.write(Stream::err, lines); }

}  // namespace pliant::cli
