#include "simulation/job.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "base/log.h"
#include "record/verify.h"
#include "simulation/faults.h"
#include "simulation/growth.h"
#include "simulation/programs.h"
#include "simulation/world.h"

namespace pliant::sim {
namespace {

/// What the seed has chosen.
struct Setting {
  int hosts = 1, workers = 3;
  bool store = false;
  int faults = 4;
  std::uint64_t checkpoint_every = 0;
  int checkpoints_kept = 1;
  bool spares_nobody = false;
  int times_everybody = 0;  // is lost
  Script script;
};

/// Whether there are checkpoints, and what a job with or without them must survive or fail by.
void choose_losses(Setting& setting, Rng dice) {
  // A program that always throws would be begun again and again.
  if (setting.script.kind == Script::Kind::grows || setting.script.all_throw) return;
  if (!dice.chance(30)) {
    setting.times_everybody = dice.chance(2) ? 1 : 0;
    return;
  }
  setting.checkpoint_every = 1 + dice.below(6);
  setting.checkpoints_kept = 1 + static_cast<int>(dice.below(3));
  setting.spares_nobody = dice.chance(30);
  setting.times_everybody = static_cast<int>(dice.below(4));
}

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
  if (script.kind == Script::Kind::grows) setting.hosts = 3, setting.workers = 1 + setting.workers % 3;
  choose_losses(setting, Rng(combine(options.seed, 4)));
  return setting;
}

class Job {
 public:
  explicit Job(const JobOptions& options)
      : dice_(combine(options.seed, 1)),
        setting_(setting_of(dice_, options)),
        // On one host the job's own directory decides (membership/directory_store.h).
        world_({options.seed, setting_.hosts, setting_.workers, setting_.store || setting_.hosts == 1, options.trace,
                options.coverage, setting_.checkpoint_every, setting_.checkpoints_kept},
               [this](Process& self) { run_program(setting_.script, checker_, self); }),
        checker_(world_, setting_.script.samples, setting_.script.epochs),
        faults_(world_, checker_, dice_, setting_.faults),
        growth_(world_, checker_) {
    if (setting_.script.kind == Script::Kind::in_flight) faults_.lose_after_reductions(Rng(combine(options.seed, 3)));
    faults_.lose_after_views(Rng(combine(options.seed, 6)));
    if (setting_.times_everybody) faults_.lose_everybody(Rng(combine(options.seed, 5)), setting_.times_everybody);
    if (setting_.spares_nobody) faults_.spare_nobody();
    world_.checkpoints().published = [this](const auto& checkpoint) { checker_.named(checkpoint); };
    const auto& script = setting_.script;
    if (setting_.checkpoint_every) world_.note("a checkpoint every {} steps", setting_.checkpoint_every);
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

  Rng dice_;
  const Setting setting_;
  World world_;
  Checker checker_;
  Faults faults_;
  Growth growth_;
  JobOutcome outcome_;
};

JobOutcome Job::run() {
  constexpr std::uint64_t kMostEvents = 3'000'000;
  constexpr Nanos kLimit = std::chrono::hours(1) + std::chrono::minutes(5);
  world_.begin();
  faults_.begin();
  if (setting_.script.kind == Script::Kind::grows) {
    faults_.part_hosts_later();
    growth_.begin();
  }
  try {
    while (world_.failure().empty() && !world_.over() && !world_.offices().only_orphans_left()) {
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
  outcome_.faults = faults_.happened();
  outcome_.kinds = faults_.kinds();
  return outcome_;
}

void Job::check_verdict() {
  auto outcome = world_.offices().end()->outcome;
  if (outcome == Outcome::finished && checker_.any_finished()) return;
  // All have thrown, or the last one has when the others had left, or were left behind.
  bool all_gone = setting_.script.all_throw || faults_.stop_asked() || checker_.last_threw();
  if (outcome == Outcome::failed && checker_.any_threw() && all_gone && !checker_.any_finished()) return;
  // All were killed before there was a checkpoint.
  bool lost = faults_.lost_everybody() && !world_.checkpoints().newest();
  if (outcome == Outcome::failed && lost && !checker_.any_finished()) return;
  // All who were left may have been asked to leave, one after the other.
  if (outcome == Outcome::stopped && (faults_.stop_asked() || faults_.notified()) && !checker_.any_finished()) return;
  note_situation();
  world_.fail(fmt::format(
      "the job is called {}, {} worker has finished, {}: {}", name_of(outcome), checker_.any_finished() ? "a" : "no",
      faults_.stop_asked() ? "it was to stop" : "nobody stopped it", world_.offices().end()->reason));
}

/// For the reader of a trace: what the coordinator takes the job for.
void Job::note_situation() {
  auto* coordinator = world_.offices().coordinator();
  if (!coordinator) return world_.note("there is no coordinator");
  std::istringstream lines(coordinator->describe());
  for (std::string line; std::getline(lines, line);) world_.note("the coordinator knows: {}", line);
  for (auto* process : world_.workers())
    world_.note("worker {} acts in view {}", process->id(), process->last_view().epoch);
}

void Job::verify() {
  auto records = world_.all_records();
  for (const auto& log : records)
    for (const auto& line : log.lines)
      if (const auto* step = std::get_if<record::StepRecord>(&line))
        outcome_.salvaged += static_cast<std::uint64_t>(
            std::ranges::count_if(step->samples, [](const auto& contribution) { return contribution.by.has_value(); }));
  bool failed = world_.offices().end()->outcome == Outcome::failed;   // rightly, see above
  failed = failed || (faults_.stop_asked() && checker_.any_threw());  // whichever came first
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
