#include "apps/pliant/agent.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <set>

#include "base/log.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kPatience = 1s;  // for others to end by themselves, before anybody is told to
constexpr Nanos kBetweenScans = 100ms;
constexpr Nanos kReporterSilence = 2s;  // after this, another worker's word on the progress counts
constexpr std::size_t kLastWords = 10;
constexpr std::size_t kMostAccusations = 4096;

std::string format_age(Nanos age) {
  return age < 60s ? fmt::format("{:.1f} s", seconds(age)) : format_span(seconds(age));
}

}  // namespace

Agent::Agent(RunOptions options, JobRecord record, JobDir dir)
    : options_(std::move(options)),
      record_(std::move(record)),
      dir_(std::move(dir)),
      started_(clock_.now()),
      console_(STDOUT_FILENO, STDERR_FILENO),
      reporter_(console_, options_.status, dir_.path()) {}

Agent::~Agent() = default;

int Agent::run() {
  if (auto started = start(); !started.ok()) return abandon(started.error());
  loop_.watch(signals_.get(), [this] {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) on_signal(static_cast<int>(info.ssi_signo));
  });
  for (const auto& worker : workers_) loop_.watch(worker.process.pidfd(), [this] { reap(); });
  loop_.every(options_.workers <= 64 ? 20ms : 100ms, [this] { tick(); });
  loop_.run();

  console_.erase();
  if (exit_status_ == 0) reporter_.finish(record_.name, snapshot());
  console_.flush();
  log::debug("coordinator: {} connections or messages refused", server_->refused());
  return exit_status_;
}

void Agent::tick() {
  auto now = clock_.now();
  for (auto& tail : tails_) tail.poll(console_);
  console_.flush();
  if (phase_ == Phase::settling) return settle();
  if (end_at_ && now >= *end_at_) {
    end_at_.reset();
    report_failure();
    say(fmt::format("pliant: stopping the other {} of {} workers\n", alive(), options_.workers));
    end_workers();
  }
  if (kill_at_ && now >= *kill_at_) kill_workers();
  reporter_.update(now, snapshot());
}

void Agent::reap() {
  ++turn_;  // all deaths of one look count as simultaneous
  for (int rank = 0; rank < options_.workers; ++rank) {
    auto& process = workers_[static_cast<std::size_t>(rank)].process;
    if (!process.reap()) continue;
    loop_.unwatch(process.pidfd());
    on_death(rank);
  }
  if (alive() == 0 && phase_ != Phase::settling) begin_settling();
}

void Agent::on_death(int rank) {
  const auto& worker = workers_[static_cast<std::size_t>(rank)];
  const auto& ending = *worker.process.ending();
  log::debug("worker {} ended: {}", rank, ending.words());
  if (!server_->formed() && !server_->has_joined(rank))
    server_->give_up(fmt::format("worker {} ended before it joined ({})", rank, ending.words()));
  bool told_to = phase_ == Phase::stopping || kill_at_;
  if (ending.good() || told_to) return;
  deaths_.push_back({rank, ending, turn_, clock_.now() - worker.started});
  if (phase_ != Phase::running) return;
  phase_ = Phase::ending;
  end_at_ = clock_.now() + kPatience;
}

void Agent::on_signal(int number) {
  if (phase_ == Phase::running) {
    interrupted_ = number;
    exit_status_ = 128 + number;
    phase_ = Phase::stopping;
    if (number != SIGQUIT) {
      say(fmt::format("pliant: stopping {} workers{}\n", alive(),
                      number == SIGINT ? " (Ctrl-C again kills them at once)" : ""));
      return end_workers();
    }
  }
  if (phase_ == Phase::ending && !kill_at_ && number != SIGQUIT) {
    end_at_ = clock_.now();  // no need to wait for the others
    return;
  }
  if (phase_ == Phase::settling) leave_at_ = clock_.now();
  kill_workers();
}

void Agent::on_progress(int rank, const wire::Progress& progress) {
  auto now = clock_.now();
  // All members say the same; the lowest rank that speaks is heard, so that the line does not jump back and forth.
  if (progress_ && rank > progress_rank_ && now - progress_at_ < kReporterSilence) return;
  progress_ = progress;
  progress_rank_ = rank;
  progress_at_ = now;
  pace_.on_progress(now, progress);
}

void Agent::on_complaint(int rank, const wire::Complaint& complaint) {
  if (accusations_.size() >= kMostAccusations) return;
  accusations_.push_back({rank, static_cast<int>(complaint.id), printable(complaint.reason)});
}

void Agent::end_workers() {
  for (const auto& worker : workers_) {
    worker.process.signal_group(SIGTERM);
    worker.process.signal_group(SIGCONT);  // a stopped process would not see the first
  }
  kill_at_ = clock_.now() + options_.grace;
}

void Agent::kill_workers() {
  for (const auto& worker : workers_) worker.process.signal_group(SIGKILL);
  kill_at_ = clock_.now();
}

void Agent::report_failure() {
  if (reported_) return;
  reported_ = true;
  server_->drain();  // the dead may have said why
  for (auto& tail : tails_) tail.poll(console_);
  auto blamed = first_to_blame(deaths_, accusations_);
  if (!blamed) return;
  exit_status_ = blamed->ending.exit_status();
  auto text = fmt::format("pliant: job '{}' failed: rank {} ended after {}: {}\n", record_.name, blamed->rank,
                          format_age(blamed->after), blamed->ending.words());
  for (const auto& word : accusations_)
    if (word.rank == blamed->rank || word.by == blamed->rank) {
      text += fmt::format("pliant: rank {} said of rank {}: {}\n", word.by, word.rank, word.reason);
      break;
    }
  const auto& files = record_.workers[static_cast<std::size_t>(blamed->rank)];
  auto words = last_lines(files.err, kLastWords);
  bool from_err = !words.empty();
  if (!from_err) words = last_lines(files.out, kLastWords);
  if (!words.empty())
    text += fmt::format("pliant: last words of rank {} ({}):\n", blamed->rank, from_err ? "stderr" : "stdout");
  for (const auto& line : words) text += fmt::format("    {}\n", line);
  say(text);
}

void Agent::begin_settling() {
  if (phase_ == Phase::ending) report_failure();
  if (interrupted_) leave_at_ = clock_.now() + kPatience;
  phase_ = Phase::settling;
  end_at_.reset();
  settle();
}

void Agent::settle() {
  if (!leftovers_gone()) return;
  bool enough = leave_at_ && clock_.now() >= *leave_at_;
  if (output_copied() || enough) loop_.stop();
}

bool Agent::leftovers_gone() {
  auto now = clock_.now();
  if (leftovers_gone_ || now < next_scan_) return leftovers_gone_;
  next_scan_ = now + kBetweenScans;
  std::set<pid_t> groups;
  for (const auto& worker : workers_) groups.insert(worker.process.id().pid);
  auto left = members_of(groups);
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
  bool all = true;
  for (auto& tail : tails_) all = tail.drain(console_) && all;
  console_.flush();
  return all && console_.idle();
}

int Agent::alive() const {
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.process.running(); }));
}

Snapshot Agent::snapshot() const {
  Snapshot now;
  bool some_wait = !server_->formed() && server_->has_joined();
  now.phase = phase_ == Phase::running ? (some_wait ? "starting" : "running")
                                       : (phase_ == Phase::stopping ? "stopping" : "ending");
  now.workers = options_.workers;
  now.alive = alive();
  now.elapsed = clock_.now() - started_;
  now.progress = progress_;
  if (phase_ == Phase::running) now.seconds_left = pace_.seconds_left(clock_.now());
  return now;
}

void Agent::say(const std::string& lines) { console_.write(Stream::err, lines); }

}  // namespace pliant::cli
