#include "simulation/programs.h"

#include <fmt/format.h>
#include <pliant/pliant.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "session/runtime.h"
#include "simulation/world.h"

namespace pliant::sim {
namespace {

using Kind = Script::Kind;
using Place = Script::Place;
using Between = Script::Between;

/// What a step of every program is made of.
class Trainer {
 public:
  Trainer(const Script& chosen, Checker& looks, Process& process)
      : script(chosen),
        checker(looks),
        self(process),
        counts(2 * script.samples),
        session(Session::join()),
        sampler(session, script.samples, {.local_batch = script.local_batch}),
        first(session.runtime().region("first", script.samples * 8)),
        second(session.runtime().region("second", script.samples * 8)) {
    session.share("counts", state_of(std::span<double>(counts)));
    session.share("phase", state_of(std::span<double>(&phase, 1)));
  }

  /// In a loop of the program, from 1.
  void begin(const Step& step, std::uint64_t loop) {
    checker.begins(self, {lineage(), loop, step.index(), step.epoch(), phase}, counts);
  }
  void make(Step step) {
    auto lease = sampler.next();
    pause(microseconds(50), milliseconds(4));
    auto one = submit(first, lease);
    pause(microseconds(10), microseconds(200));
    auto two = submit(second, lease);
    close(one, two);
    step.log("loss", 1.0);
  }
  step::StepReductionPtr submit(const step::StableRegionPtr& area, const Lease& lease) {
    auto* values = reinterpret_cast<double*>(area->region->input());
    std::fill(values, values + script.samples, 0.0);
    for (auto sample : lease) values[sample] = 1;
    step::Task task{
        .name = area->name, .dtype = Dtype::f64, .count = script.samples, .memory = area, .with_step = true};
    if (script.kind == Script::Kind::measures) measure(task, area == first ? 0 : 2);
    return session.runtime().submit(std::move(task));
  }
  /// A gradient of two tensors.
  void measure(step::Task& task, std::uint32_t tensor) {
    task.gradient = true;
    task.measure = session.runtime().gradient_measure();
    if (!session.runtime().variance_due()) return;
    task.marks = std::make_shared<collective::Marks>(collective::Marks{0, script.samples / 3 * sizeof(double)});
    task.tensors = {tensor, tensor + 1};
  }
  void close(const step::StepReductionPtr& one, const step::StepReductionPtr& two) {
    session.runtime().close_step();
    const auto* a = static_cast<const double*>(one->result());
    const auto* b = static_cast<const double*>(two->result());
    for (std::size_t i = 0; i < script.samples; ++i) counts[i] += a[i], counts[script.samples + i] += b[i];
  }
  void evaluate(const Step& step) {
    if (!script.evaluates || !step.ends_epoch()) return;
    pause(microseconds(50), milliseconds(30));
    session.average("accuracy", 0.5, 1);
  }
  std::uint64_t lineage() { return session.runtime().training().job.lineage; }
  void pause(Nanos least, Nanos most) { self.sleep(self.world().rng().between(least, most)); }
  /// The last loop has ended.
  void end() {
    if (session.outcome() == Outcome::finished)
      checker.finished(self, counts);
    else
      checker.left(self);
  }

  const Script& script;
  Checker& checker;
  Process& self;
  std::vector<double> counts;
  double phase = 0;  // changes between two loops
  Session session;
  ElasticSampler sampler;
  const step::StableRegionPtr first, second;
};

void usual(Trainer& trainer) {
  for (auto step : trainer.session.steps({.epochs = trainer.script.epochs})) {
    trainer.begin(step, 1);
    trainer.make(step);
    trainer.evaluate(step);
  }
}

/// What the program does between two loops.
void pass_time(Trainer& trainer) {
  switch (trainer.script.between) {
    case Between::nothing:
      return;
    case Between::change:
      trainer.phase += 1;
      [[fallthrough]];
    case Between::pause:
      return trainer.pause(microseconds(10), milliseconds(60));
    case Between::average:
      trainer.pause(microseconds(10), milliseconds(20));
      trainer.session.average("between", 0.5, 1);
      return;
  }
}

void two_loops(Trainer& trainer) {
  const auto& script = trainer.script;
  auto run = [&](std::uint64_t loop, std::uint64_t epochs) {
    for (auto step : trainer.session.steps({.epochs = epochs})) {
      trainer.begin(step, loop);
      if ((step.epoch() < script.first_epochs) != (loop == 1))
        trainer.checker.objects(trainer.self, fmt::format("step {} of epoch {} in loop {} of the program", step.index(),
                                                          step.epoch(), loop));
      trainer.make(step);
      trainer.evaluate(step);
    }
    return trainer.session.outcome() == Outcome::finished;
  };
  if (!run(1, script.first_epochs)) return;
  pass_time(trainer);
  run(2, script.epochs);
}

/// A step up to the place where the loop is left.
void begin_in_vain(Trainer& trainer) {
  auto place = trainer.script.place;
  if (place == Place::before_lease) return;
  auto lease = trainer.sampler.next();
  if (place == Place::after_lease) return;
  trainer.submit(trainer.first, lease);
  trainer.pause(microseconds(10), microseconds(200));
  if (place == Place::between_buckets) return;
  trainer.submit(trainer.second, lease);
  trainer.session.runtime().close_step();
}

void left_by_break(Trainer& trainer) {
  const auto& script = trainer.script;
  auto& session = trainer.session;
  bool left = false;
  for (auto step : session.steps({.epochs = script.epochs})) {
    trainer.begin(step, 1);
    if (step.index() > script.special_step)
      trainer.checker.objects(trainer.self, fmt::format("step {} in a loop that was left", step.index()));
    left = step.index() == script.special_step;
    if (left) {
      begin_in_vain(trainer);
      break;
    }
    trainer.make(step);
  }
  if (!left && session.outcome() != Outcome::finished) return;
  pass_time(trainer);
  for (auto step : session.steps({.epochs = script.epochs})) {
    trainer.begin(step, 2);
    trainer.make(step);
    trainer.evaluate(step);
  }
}

/// Plain reductions that have been submitted, and the memory that they are in.
class InFlight {
 public:
  explicit InFlight(Trainer& trainer) : trainer_(trainer) {
    auto alone = [this] {
      if (trainer_.session.runtime().views().counts()) return;
      for (auto& one : all_) one.own = true;
    };
    listener_ = std::make_shared<std::function<void()>>(alone);
    trainer.session.runtime().at_view_change(listener_);
  }
  void submit(const Step& step, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      auto& one = all_.emplace_back();
      one.values.assign(1 + i % 3, 1.0);
      one.lineage = trainer_.lineage();
      one.key = fmt::format("{}/{}", step.index(), i);
      one.own = !trainer_.session.runtime().views().counts();
      one.reduction = trainer_.session.reduce<double>(fmt::format("plain{}", i), std::span<double>(one.values));
    }
  }
  /// Until so many are left. Everybody whose word counts must have had the same result.
  void wait(std::size_t left) {
    while (all_.size() > left) {
      auto& one = all_.front();
      auto sum = one.reduction.wait()[0];
      if (!one.own) trainer_.checker.agrees(trainer_.self, one.lineage, one.key, sum);
      all_.pop_front();
    }
  }

 private:
  struct One {
    std::vector<double> values;
    std::uint64_t lineage = 0;
    std::string key;
    Reduction<double> reduction;
    bool own = false;  // the others have gone on without this worker: its result is its own affair
  };
  Trainer& trainer_;
  std::deque<One> all_;
  session::Runtime::Listener listener_;
};

void in_flight(Trainer& trainer) {
  const auto& script = trainer.script;
  InFlight plain(trainer);
  for (auto step : trainer.session.steps({.epochs = script.epochs})) {
    trainer.begin(step, 1);
    auto count = step.index() % 5 == script.special_step % 5 ? script.in_flight : 3;
    if (!script.waits_in_next_step) plain.submit(step, count);
    trainer.make(step);
    trainer.session.average("value", 0.5, 1);
    plain.wait(0);
    if (script.waits_in_next_step) plain.submit(step, count);  // under way when the step ends
  }
  plain.wait(0);
}

void batches(Trainer& trainer) {
  const auto& script = trainer.script;
  auto change = [&](const Step& step, std::uint64_t when) {
    auto chosen = combine(script.special_step, step.index());
    if (chosen % 6 == when) trainer.session.batch({.local = 1 + (chosen >> 8) % 6});
  };
  for (auto step : trainer.session.steps({.epochs = script.epochs})) {
    trainer.begin(step, 1);
    change(step, 0);
    auto lease = trainer.sampler.next();
    change(step, 1);
    trainer.pause(microseconds(50), milliseconds(4));
    auto one = trainer.submit(trainer.first, lease);
    change(step, 2);
    auto two = trainer.submit(trainer.second, lease);
    trainer.close(one, two);
    change(step, 3);
    trainer.evaluate(step);
  }
}

void long_evaluation(Trainer& trainer) {
  const auto& script = trainer.script;
  for (auto step : trainer.session.steps({.epochs = script.epochs})) {
    trainer.begin(step, 1);
    trainer.make(step);
    if (!step.ends_epoch()) continue;
    if (trainer.session.leader() && step.epoch() + 2 > script.epochs) trainer.pause(seconds(31), seconds(45));
    trainer.session.average("accuracy", 0.5, 1);
  }
}

void throws(Trainer& trainer) {
  const auto& script = trainer.script;
  for (auto step : trainer.session.steps({.epochs = script.epochs})) {
    trainer.begin(step, 1);
    if (step.index() >= script.special_step && trainer.checker.shall_throw(trainer.self, script.all_throw)) {
      begin_in_vain(trainer);
      trainer.self.world().hit(Fault::exception, trainer.self);
      trainer.checker.throws(trainer.self);
      throw ThrownOnOrder{};
    }
    trainer.make(step);
    trainer.evaluate(step);
  }
}

void measures(Trainer& trainer) {
  const auto& script = trainer.script;
  trainer.session.monitor({.noise_scale = 1, .variance = 1});
  for (auto step : trainer.session.steps({.epochs = script.epochs})) {
    trainer.begin(step, 1);
    trainer.make(step);
    trainer.evaluate(step);
  }
}

void grows(Trainer& trainer) {
  const auto& script = trainer.script;
  for (auto step : trainer.session.steps({.epochs = script.epochs})) {
    trainer.begin(step, 1);
    trainer.pause(milliseconds(300), milliseconds(900));
    trainer.make(step);
  }
}

}  // namespace

std::optional<Kind> program_named(std::string_view name) {
  auto at = std::ranges::find(Script::kNames, name);
  if (at == Script::kNames.end()) return std::nullopt;
  return static_cast<Kind>(at - Script::kNames.begin());
}

void choose_program(Script& script, Rng dice, std::optional<Kind> wanted) {
  // The usual one and two loops more often than the others.
  constexpr Kind kKinds[] = {Kind::usual,         Kind::usual,     Kind::usual,   Kind::two_loops,
                             Kind::left_by_break, Kind::in_flight, Kind::batches, Kind::long_evaluation,
                             Kind::throws,        Kind::measures};
  auto chosen = kKinds[dice.below(std::size(kKinds))];
  if (dice.chance(1)) chosen = Kind::grows;  // takes as long as forty others
  script.kind = wanted.value_or(chosen);
  script.first_epochs = 1 + dice.below(script.epochs - 1);
  script.between = static_cast<Between>(dice.below(4));
  script.special_step = dice.below(12);
  script.place = static_cast<Place>(dice.below(4));
  script.all_throw = dice.chance(20);
  script.in_flight = dice.chance(5) ? 100 + dice.below(200) : 10 + dice.below(20);
  script.waits_in_next_step = dice.chance(50);
  if (script.kind != Kind::grows) return;
  script.samples = 150 + dice.below(70);
  script.local_batch = 1;
  script.epochs = 2;
}

void run_program(const Script& script, Checker& checker, Process& self) {
  Trainer trainer(script, checker, self);
  constexpr void (*kPrograms[])(Trainer&) = {usual,           two_loops, left_by_break, in_flight, batches,
                                             long_evaluation, throws,    measures,      grows};
  static_assert(std::size(kPrograms) == Script::kNames.size());
  kPrograms[static_cast<std::size_t>(script.kind)](trainer);
  trainer.end();
}

}  // namespace pliant::sim
