#include "apps/pliant/chaos_storm.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "apps/pliant/command.h"

namespace pliant::cli::chaos {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kTick = 25ms;      // between two looks at the job
constexpr Nanos kTimeToEnd = 10s;  // for an agent whose job has ended

Fd watch_signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&wanted, number);
  sigprocmask(SIG_BLOCK, &wanted, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return Fd(signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
}

}  // namespace

Storm::Storm(const Clock& clock, StormOptions options, Observer& observer, Executor& executor)
    : clock_(clock),
      options_(std::move(options)),
      observer_(observer),
      executor_(executor),
      planner_(options_.plan),
      signals_(watch_signals()),
      began_(clock_.now()),
      began_at_(unix_seconds()) {}

void Storm::say(const std::string& line) const {
  fmt::print("{:8.2f} s  {}\n", seconds(clock_.now() - began_), line);
  std::fflush(stdout);
}

Report Storm::run() {
  auto due = began_;
  for (std::uint64_t number = 0; number < options_.events; ++number) {
    due += planner_.draw(number).wait;
    if (options_.duration && due - began_ > *options_.duration) break;
    bool goes_on = true;
    while (goes_on && clock_.now() < due) {
      sleep_until(due);
      goes_on = tick();
    }
    if (!goes_on || !happen(number)) break;
    due = std::max(due, clock_.now() - options_.plan.every);  // what was late is not made up for all at once
  }
  raging_ = false;
  calm_down();
  Report report;
  conclude(report);
  return report;
}

bool Storm::happen(std::uint64_t number) {
  auto draw = planner_.draw(number);
  auto give_up = clock_.now() + options_.longest_skip;
  if (!tick()) return false;
  auto event = planner_.aim(draw, executor_.situation());
  while (!event.ok() && clock_.now() < give_up) {
    sleep_until(clock_.now() + kTick);
    if (!tick()) return false;
    event = planner_.aim(draw, executor_.situation());
  }
  if (event.ok())
    note(number, draw.kind, executor_.execute(event.value()));
  else
    note(number, draw.kind, event.error());
  return true;
}

void Storm::note(std::uint64_t number, Kind kind, const Result<std::string>& done) {
  Deed deed{number, kind, unix_seconds(), done.ok(), done.ok() ? done.value() : done.error().message, observer_.step()};
  say(fmt::format("#{:<4} {:<17} {}{}; step {}, {} members, {} workers, {} wanted", number, name_of(kind),
                  done.ok() ? "" : "skipped: ", deed.words, deed.step, observer_.members(), observer_.workers(),
                  observer_.wanted()));
  deeds_.push_back(std::move(deed));
}

bool Storm::tick() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) interrupted_ = true;
  ended_ = !observer_.look();
  executor_.run_due();
  if (!ended_ && raging_) executor_.grow_to(options_.plan.least);
  stuck_ = !ended_ && seconds_since_step() > seconds(options_.patience);
  return !interrupted_ && !ended_ && !stuck_;
}

double Storm::seconds_since_step() const { return unix_seconds() - std::max(began_at_, observer_.stepped_at()); }

void Storm::sleep_until(Nanos when) {
  if (auto next = executor_.next_due()) when = std::min(when, *next);
  auto span = std::clamp(when - clock_.now(), Nanos(0), kTick);
  pollfd waiting{signals_.get(), POLLIN, 0};
  poll(&waiting, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(span).count()));
}

/// Until nothing is stopped any more and the job has made a step since; then, if that is wished for, until it ends.
void Storm::calm_down() {
  auto wait_while = [&](auto holds) {
    while (holds() && tick()) sleep_until(clock_.now() + kTick);
  };
  if (!interrupted_) wait_while([&] { return executor_.busy(); });
  executor_.undo_all();
  if (interrupted_ || ended_) return;
  auto step = observer_.step();
  wait_while([&] { return observer_.step() == step; });
  if (options_.wait) wait_while([] { return true; });
  if (interrupted_) executor_.undo_all();
}

void Storm::conclude(Report& report) {
  report.job = observer_.job().record.name;
  report.seed = options_.plan.seed;
  report.deeds = std::move(deeds_);
  report.steps = observer_.step_times();
  report.records = observer_.trail().dir();
  report.from_records = !report.records.empty();
  report.interrupted = interrupted_;
  report.ended = ended_;
  report.stuck = stuck_;
  report.step = observer_.step();
  report.steps_wanted = observer_.steps();
  // An agent removes the job's directory before it ends itself.
  auto end = clock_.now() + kTimeToEnd;
  while (ended_ && executor_.replaced_agent() && !executor_.agent_ending() && clock_.now() < end) {
    executor_.run_due();
    sleep_until(clock_.now() + kTick);
  }
  if (auto ending = executor_.agent_ending(); ending && ended_) {
    report.ending = "its agent: " + ending->words();
    report.ending_good = ending->good();
  } else if (auto last = last_worker(report.records); last && ended_) {
    report.ending = "its last worker: " + last->words;
    report.ending_good = last->good;
  }
  if (ended_ && report.from_records) report.verification = record::verify_records(report.records);
  measure(report);
}

}  // namespace pliant::cli::chaos
