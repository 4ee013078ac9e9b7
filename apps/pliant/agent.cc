#include "apps/pliant/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "base/log.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;
using agent::Supervision;

constexpr Nanos kBetweenScans = 100ms;
constexpr std::size_t kLastWords = 10;

}  // namespace

int Agent::run() {
  if (auto started = start(); !started.ok())
    return job_.attached() ? let_go(started.error()) : abandon(started.error());
  loop_.every(record().plan.wanted <= 64 ? 20ms : 100ms, [this] { tick(); });
  loop_.run();
  if (supervision_.cannot_start()) return abandon(*supervision_.cannot_start());

  keeper_->end();
  console_.erase();
  const auto& verdict = supervision_.verdict();
  events_.note("over", std::string(name_of(verdict.outcome())));
  if (!record().is_part()) reporter_.finish(record().name, verdict.outcome(), snapshot());
  if (!record().is_part()) reporter_.present(news_.account().words(seconds(clock_.now())), events_);
  console_.flush();
  return verdict.exit_status();
}

void Agent::tick() {
  workers_.copy_output();
  console_.flush();
  supervision_.on_time();
  if (supervision_.phase() == Supervision::Phase::settling) return settle();
  reporter_.update(clock_.now(), snapshot());
}

void Agent::reap() {
  std::vector<Supervision::End> ends;
  for (const auto* worker : workers_.reap()) ends.push_back({worker->id, *worker->process.ending()});
  supervision_.on_ended(ends);
  if (supervision_.phase() == Supervision::Phase::settling) settle();
}

// ---- for the supervision ----

Result<pid_t> Agent::start(std::uint64_t id) {
  auto started = workers_.start(id);
  if (!started.ok()) return started.error();
  const auto& worker = *started.value();
  job_.add_worker({worker.process.id(), worker.out, worker.err, id}, loop_);
  return worker.process.id().pid;
}

void Agent::signal(std::uint64_t id, int number) {
  if (const auto* worker = workers_.find(id)) worker->process.signal_group(number);
}

bool Agent::send(const wire::Message& message) { return keeper_ && keeper_->send(message); }

std::optional<Nanos> Agent::missed_for() const { return keeper_->missed_for(); }

void Agent::drain() { keeper_->drain(); }

session::WorkerNote Agent::note_of(std::uint64_t id) const {
  return session::read_worker_note(note_file(job_.path(), id));
}

void Agent::note_told(std::uint64_t id) { job_.note_told(id, loop_); }

void Agent::forget(std::uint64_t id) {
  workers_.forget(id);
  job_.forget_worker(id, loop_);
}

std::string Agent::last_words(std::uint64_t id) {
  workers_.copy_output();
  const auto& worker = *workers_.find(id);
  auto words = last_lines(worker.err, kLastWords);
  bool from_err = !words.empty();
  if (!from_err) words = last_lines(worker.out, kLastWords);
  if (words.empty()) return "";
  auto text = fmt::format("pliant: last words of worker {} ({}):\n", id, from_err ? "stderr" : "stdout");
  for (const auto& line : words) text += fmt::format("    {}\n", line);
  return text;
}

void Agent::say(const std::string& lines) { console_.write(Stream::err, lines); }

void Agent::note(const std::string& what, std::uint64_t worker, const std::string& text) {
  events_.note(what, worker, text);
}

void Agent::on_message(const wire::Message& message) {
  if (const auto* state = std::get_if<wire::JobState>(&message)) news_.on_state(clock_.now(), *state);
  if (const auto* progress = std::get_if<wire::Progress>(&message)) news_.on_progress(clock_.now(), *progress);
  supervision_.on_message(message);
  if (supervision_.cannot_start()) loop_.stop();
}

// ---- the end ----

void Agent::settle() {
  if (!supervision_.judged() || !leftovers_gone()) return;
  if (output_copied() || supervision_.countdown().leave_due(clock_.now())) loop_.stop();
}

bool Agent::leftovers_gone() {
  auto now = clock_.now();
  if (leftovers_gone_ || now < next_scan_) return leftovers_gone_;
  next_scan_ = now + kBetweenScans;
  auto left = workers_.leftovers();
  leftovers_gone_ = left.empty();
  if (leftovers_gone_) return true;

  auto& countdown = supervision_.countdown();
  if (!countdown.ends()) countdown.end_at(now + Supervision::kPatience);
  int signal = countdown.kill_due(now) ? SIGKILL : 0;
  if (!countdown.told() && countdown.end_due(now)) {
    signal = SIGTERM;
    countdown.kill_at(now + options_.grace);
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

Snapshot Agent::snapshot() const {
  Snapshot now;
  const auto& word = supervision_.word();
  auto phase = supervision_.phase();
  bool some_wait = !word.has_begun() && word.state().spare > 0;
  bool runs = phase == Supervision::Phase::running;
  now.phase =
      runs ? (some_wait ? "starting" : "running") : (phase == Supervision::Phase::stopping ? "stopping" : "ending");
  now.alive = supervision_.alive();
  if (word.has_begun())
    now.alive = static_cast<int>(std::ranges::count_if(word.state().view.members, [&](const auto& member) {
      const auto* worker = supervision_.find(member.id);
      return worker && worker->running();
    }));
  now.elapsed = clock_.now() - started_;
  now.at = unix_seconds();
  news_.describe(now, word, clock_.now(), runs);
  return now;
}

}  // namespace pliant::cli
