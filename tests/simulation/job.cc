#include "simulation/job.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/log.h"
#include "record/verify.h"
#include "simulation/programs.h"
#include "simulation/world.h"

namespace pliant::sim {
namespace {

/// What the seed has chosen.
struct Setting {
  int hosts = 1, workers = 3;
  bool store = false;
  int faults = 4;
  Script script;
};

Setting setting_of(Rng& dice, const JobOptions& options) {
  Setting setting;
  auto& script = setting.script;
  setting.hosts = dice.chance(50) ? 1 : 2 + static_cast<int>(dice.below(2));
  setting.store = setting.hosts > 1 && dice.chance(40);
  setting.workers = 1 + static_cast<int>(dice.below(5));
  script.samples = 20 + dice.below(60);
  script.local_batch = 1 + dice.below(5);
  script.epochs = 2 + dice.below(3);
  setting.faults = static_cast<int>(dice.below(14));
  script.evaluates = dice.chance(50);
  choose_program(script, Rng(combine(options.seed, 2)), options.program);
  return setting;
}

class Job {
 public:
  explicit Job(const JobOptions& options)
      : dice_(combine(options.seed, 1)),
        setting_(setting_of(dice_, options)),
        world_({options.seed, setting_.hosts, setting_.workers, setting_.store, options.trace},
               [this](Process& self) { run_program(setting_.script, checker_, self); }),
        checker_(world_, setting_.script.samples, setting_.script.epochs) {
    world_.may_die = [this](const Process& process) { return may_die(process); };
    const auto& script = setting_.script;
    world_.note("{} hosts{}, {} workers, program '{}', {} samples, batch {}, {} epochs, {} faults", setting_.hosts,
                setting_.store ? " and a store" : "", setting_.workers, name_of(script.kind), script.samples,
                script.local_batch, script.epochs, setting_.faults);
  }

  JobOutcome run();
  World& world() { return world_; }

 private:
  void check_verdict();
  void verify();
  void note_situation();
  void next_fault();
  void fault();
  void calm_down();
  /// Its death leaves somebody who has the state.
  bool may_die(const Process& process);
  Process* victim();
  void kill(Process* process);
  void notify(Process* process);
  void pause(Process* process);
  void cut();
  void join_and_kill();

  Rng dice_;
  const Setting setting_;
  World world_;
  Checker checker_;
  int faults_left_ = 0;
  bool stop_asked_ = false, notified_ = false;
  JobOutcome outcome_;
};

// ---- faults ----

bool Job::may_die(const Process& process) {
  auto holders = checker_.holders();
  holders.erase(process.id());
  std::erase_if(holders, [&](auto id) { return world_.worker(id)->notified() && !stop_asked_; });
  return !holders.empty();
}

Process* Job::victim() {
  auto all = world_.workers();
  std::erase_if(all, [&](const Process* process) { return !may_die(*process); });
  return all.empty() ? nullptr : all[dice_.below(all.size())];
}

void Job::kill(Process* process) {
  if (!process || !may_die(*process)) return;
  ++outcome_.faults;
  if (dice_.chance(50))
    world_.kill(*process);
  else
    process->doom(static_cast<int>(dice_.below(25)));
}

/// Somebody stays who was not asked to leave.
void Job::notify(Process* process) {
  auto holders = checker_.holders();
  if (!process || std::ranges::none_of(holders, [&](auto id) {
        return id != process->id() && world_.lives(id) && !world_.worker(id)->notified();
      }))
    return;
  notified_ = true;
  process->notify();
}

void Job::pause(Process* process) {
  if (!process) return;
  ++outcome_.faults;
  world_.note(*process, "is stopped");
  process->stop();
  auto id = process->id();
  world_.scheduler().after(dice_.between(milliseconds(1), milliseconds(900)), [this, id] {
    if (auto* stopped = world_.worker(id)) stopped->go_on();
  });
}

void Job::cut() {
  auto from = dice_.below(static_cast<std::uint64_t>(setting_.hosts));
  auto to = (from + 1 + dice_.below(static_cast<std::uint64_t>(setting_.hosts) - 1)) %
            static_cast<std::uint64_t>(setting_.hosts);
  auto a = world_.host_name(static_cast<int>(from)), b = world_.host_name(static_cast<int>(to));
  ++outcome_.faults;
  world_.cut_link(a, b);
  if (dice_.chance(60)) world_.cut_link(b, a);
  world_.scheduler().after(dice_.between(milliseconds(5), milliseconds(3000)), [this, a, b] {
    world_.heal(a, b);
    world_.heal(b, a);
  });
}

void Job::join_and_kill() {
  world_.resize(1 + static_cast<std::uint32_t>(dice_.below(6)));
  world_.scheduler().after(dice_.between(milliseconds(0), milliseconds(200)), [this] { kill(victim()); });
}

void Job::fault() {
  enum Kind {
    kill_one,
    kill_two,
    term,
    stop_job,
    resize,
    join_kill,
    switch_kill,
    stop,
    coordinator,
    link,
    link_kill,
    store,
    kinds
  };
  static constexpr const char* kNames[] = {"kill",        "kill2",   "term",        "stop", "resize",   "join-kill",
                                           "switch-kill", "sigstop", "coordinator", "cut",  "cut-kill", "store"};
  auto kind = static_cast<Kind>(dice_.below(kinds));
  if (setting_.hosts == 1 && (kind == link || kind == link_kill || kind == store)) kind = kill_one;
  world_.note("fault: {}", kNames[kind]);
  ++outcome_.kinds[kNames[kind]];
  switch (kind) {
    case kill_two:
      kill(victim());
      [[fallthrough]];
    case kill_one:
      return kill(victim());
    case term:
      return notify(victim());
    case stop_job:
      if (dice_.chance(80)) return kill(victim());
      stop_asked_ = true;
      for (auto* process : world_.workers()) process->notify();
      return;
    case resize:
      return world_.resize(1 + static_cast<std::uint32_t>(dice_.below(6)));
    case join_kill:
      return join_and_kill();
    case switch_kill:
      notify(victim());
      world_.scheduler().after(dice_.between(milliseconds(0), milliseconds(12)), [this] { kill(victim()); });
      return;
    case stop:
      return pause(victim());
    case coordinator:
      return world_.kill_coordinator();
    case link:
      return cut();
    case link_kill:
      cut();
      world_.scheduler().after(dice_.between(milliseconds(0), milliseconds(1500)), [this] { kill(victim()); });
      return;
    case store:
      world_.set_store_silent(true);
      world_.scheduler().after(dice_.between(milliseconds(1), milliseconds(800)),
                               [this] { world_.set_store_silent(false); });
      return;
    case kinds:
      return;
  }
}

void Job::next_fault() {
  if (faults_left_-- <= 0) return calm_down();
  world_.scheduler().after(dice_.between(milliseconds(0), milliseconds(150)), [this] {
    fault();
    next_fault();
  });
}

/// From here on nothing new happens to the job: it must come to its end.
void Job::calm_down() {
  world_.scheduler().after(seconds(4), [this] {
    world_.note("no more faults");
    world_.heal_all();
    world_.set_store_silent(false);
    for (auto* process : world_.workers())
      if (process->stopped()) process->go_on();
  });
}

JobOutcome Job::run() {
  constexpr std::uint64_t kMostEvents = 3'000'000;
  constexpr Nanos kLimit = std::chrono::hours(1) + std::chrono::minutes(5);
  faults_left_ = setting_.faults;
  world_.begin();
  world_.scheduler().after(milliseconds(20), [this] { next_fault(); });
  try {
    while (world_.failure().empty() && !world_.over()) {
      if (world_.now() > kLimit || world_.scheduler().events() > kMostEvents) {
        note_situation();
        world_.fail(
            fmt::format("the job has not ended: step {}, {} workers", checker_.steps(), world_.workers().size()));
        break;
      }
      world_.scheduler().step();
    }
  } catch (const std::exception& error) {
    world_.fail(error.what());
  }
  if (world_.failure().empty()) check_verdict();
  if (world_.failure().empty()) verify();
  outcome_.failure = world_.failure();
  outcome_.trace = world_.trace();
  outcome_.events = world_.scheduler().events();
  outcome_.steps = checker_.steps();
  return outcome_;
}

void Job::check_verdict() {
  auto outcome = wire::outcome_in(world_.verdict()->outcome);
  if (outcome == Outcome::finished && checker_.any_finished()) return;
  // All have thrown, or the last one has when the others had left.
  bool all_gone = setting_.script.all_throw || stop_asked_;
  if (outcome == Outcome::failed && checker_.any_threw() && all_gone && !checker_.any_finished()) return;
  // All who were left may have been asked to leave, one after the other.
  if (outcome == Outcome::stopped && (stop_asked_ || notified_) && !checker_.any_finished()) return;
  world_.fail(fmt::format("the job is called {}, {} worker has finished, {}: {}", name_of(outcome),
                          checker_.any_finished() ? "a" : "no", stop_asked_ ? "it was to stop" : "nobody stopped it",
                          world_.verdict()->reason));
}

/// For the reader of a trace: what the coordinator takes the job for.
void Job::note_situation() {
  auto* coordinator = world_.coordinator();
  if (!coordinator) return world_.note("there is no coordinator");
  const auto& view = coordinator->view();
  std::string members;
  for (const auto& member : view.members)
    members += fmt::format(" {}{}", member.id, world_.lives(member.id) ? "" : " (gone)");
  world_.note("the coordinator knows view {} of term {} with{}; over {}, outcome {}", view.epoch, view.term, members,
              coordinator->over(), name_of(coordinator->verdict()));
  for (auto* process : world_.workers()) world_.note("worker {} acts in view {}", process->id(), process->last_view());
}

void Job::verify() {
  auto records = world_.all_records();
  for (const auto& log : records)
    for (const auto& line : log.lines)
      if (const auto* step = std::get_if<record::StepRecord>(&line))
        outcome_.salvaged += static_cast<std::uint64_t>(
            std::ranges::count_if(step->samples, [](const auto& contribution) { return contribution.by.has_value(); }));
  bool failed = wire::outcome_in(world_.verdict()->outcome) == Outcome::failed;  // rightly, see above
  auto verified = record::verify(records, {.partial = failed});
  if (!verified.ok) world_.fail("verify: " + (verified.faults.empty() ? verified.text() : verified.faults.front()));
}

class Quiet final : public log::Sink {
 public:
  explicit Quiet(World* world) : world_(world) {}
  bool enabled(log::Level level) override { return world_->options().trace && level >= log::Level::debug; }
  void write(log::Level, std::string_view text) override {
    if (world_->running)
      world_->note(*world_->running, "log: {}", text);
    else
      world_->note("log: {}", text);
  }

 private:
  World* world_;
};

[[noreturn]] void throw_bug(const char* condition, const char* file, int line) {
  throw std::logic_error(fmt::format("bug: {} at {}:{}", condition, file, line));
}

}  // namespace

JobOutcome simulate_job(const JobOptions& options) {
  on_bug(&throw_bug);
  Job job(options);
  Quiet quiet(&job.world());
  log::redirect(&quiet);
  auto outcome = job.run();
  log::redirect(nullptr);
  on_bug(nullptr);
  return outcome;
}

}  // namespace pliant::sim
