#include "simulation/process.h"

#include <utility>

#include "base/log.h"
#include "simulation/twin_checkpoints.h"
#include "simulation/twin_group.h"
#include "simulation/world.h"

namespace pliant::sim {
namespace {

/// Waiting lets the scheduler run.
class SimCondition final : public Condition {
 public:
  explicit SimCondition(Process& process) : process_(process) {}
  void wait(std::unique_lock<std::mutex>& lock) override {
    lock.unlock();
    process_.park();
    lock.lock();
  }
  void wait_for(std::unique_lock<std::mutex>& lock, Nanos span) override {
    auto up = std::make_shared<bool>(false);
    process_.later(span, [this, up] {
      *up = true;
      process_.wake();
    });
    wait(lock);
  }
  void notify_all() override { process_.wake(); }

 private:
  Process& process_;
};

class SimNotice final : public session::Notice {
 public:
  explicit SimNotice(const Process& process) : process_(process) {}
  bool given() const override { return process_.notified(); }

 private:
  const Process& process_;
};

class AtOnce final : public session::Reclaimer {
 public:
  void take(session::Remains /*remains*/) override {}
  void make_spares(const session::Regions& /*regions*/) override {}
};

/// What a killed process would write while it is taken apart is written by nobody.
class OwnRecords final : public record::RecordSink {
 public:
  OwnRecords(const Process& process, record::MemoryLog& log) : process_(process), log_(log) {}
  void write(const record::Line& line) override {
    if (process_.alive()) log_.lines.push_back(line);
  }

 private:
  const Process& process_;
  record::MemoryLog& log_;
};

class SimPlatform final : public session::Platform {
 public:
  explicit SimPlatform(Process& process) : process_(process), checkpoints_(process) {}
  const Clock& clock() const override { return process_.world().scheduler(); }
  double unix_time() const override { return pliant::seconds(clock().now()); }
  std::unique_ptr<Condition> condition() override { return std::make_unique<SimCondition>(process_); }
  std::optional<std::string> variable(const char* name) const override {
    const auto& world = process_.world().options();
    if (world.checkpoint_every == 0) return std::nullopt;
    if (name == std::string_view("PLIANT_CHECKPOINT")) return "checkpoints";
    if (name == std::string_view("PLIANT_CHECKPOINT_EVERY")) return std::to_string(world.checkpoint_every);
    if (name == std::string_view("PLIANT_CHECKPOINT_KEEP")) return std::to_string(world.checkpoints_kept);
    return std::nullopt;
  }
  Result<std::optional<session::RosterOptions>> invitation() override {
    session::RosterOptions options;
    options.job = "simulated";
    options.self = {process_.id(), process_.pid(), fmt::format("@{}", process_.id()), process_.host(), ""};
    options.has_coordinator = true;
    options.has_store = process_.world().options().store;
    options.build = "simulated";
    options.open = [this, self = options.self] { return std::make_unique<TwinTransport>(process_, self); };
    return std::optional(std::move(options));
  }
  Result<std::unique_ptr<collective::Group>> group_of_one(collective::Team team) override {
    return std::unique_ptr<collective::Group>(
        std::make_unique<TwinGroup>(process_, nullptr, std::move(team), std::make_shared<TwinView>()));
  }
  std::unique_ptr<session::Reclaimer> reclaimer() override { return std::make_unique<AtOnce>(); }
  Result<std::unique_ptr<record::RecordSink>> records(const session::JournalOptions&, std::uint64_t worker) override {
    return std::unique_ptr<record::RecordSink>(
        std::make_unique<OwnRecords>(process_, process_.world().records(worker)));
  }
  session::CheckpointStorage& checkpoints() override { return checkpoints_; }
  std::unique_ptr<session::Notice> notice() override { return std::make_unique<SimNotice>(process_); }
  void lower_priority() override {}
  step::TransitionWatch* transitions() override { return &process_.watch(); }

 private:
  Process& process_;
  TwinCheckpoints checkpoints_;
};

}  // namespace

Process::Process(World& world, std::uint64_t id, std::string host, int pid)
    : world_(world),
      id_(id),
      host_(std::move(host)),
      pid_(pid),
      watch_(world.options().coverage, [this] { world_.reached(*this); }),
      platform_(std::make_unique<SimPlatform>(*this)) {}

Process::~Process() {
  if (!dead_) kill();
}

void Process::start(Program program, Nanos delay, std::function<void(bool good)> ended) {
  ended_ = std::move(ended);
  fiber_ = std::make_unique<Fiber>([this, program = std::move(program)] {
    bool good = false;
    try {
      program(*this);
      good = true;
    } catch (const Killed&) {
      return;
    } catch (const ThrownOnOrder&) {
      world_.note(*this, "ends with an exception");
    } catch (const std::exception& error) {
      world_.note(*this, "ends with: {}", error.what());
      world_.worker_failed(*this, error.what());
    }
    dead_ = true;
    ended_(good);
  });
  later(delay, [this] { run(); });
}

void Process::run() {
  if (!fiber_ || fiber_->finished() || running_) return;
  running_ = true;
  parked_ = false;
  {
    session::PlatformScope scope(*platform_);
    const auto* before = std::exchange(world_.running, this);
    fiber_->resume();
    world_.running = before;
  }
  running_ = false;
}

void Process::kill() {
  if (dead_ && (!fiber_ || fiber_->finished())) return;
  dead_ = true;
  if (running_) return;  // it throws by itself
  if (fiber_ && parked_) run();
  fiber_.reset();
}

void Process::go_on() {
  stopped_ = false;
  for (auto& action : std::exchange(held_back_, {})) later(Nanos(0), std::move(action));
}

void Process::park() {
  if (dead_) throw Killed{};
  parked_ = true;
  Fiber::yield();
  if (dead_) throw Killed{};
}

void Process::sleep(Nanos span) {
  auto up = std::make_shared<bool>(false);
  later(span, [this, up] {
    *up = true;
    wake();
  });
  while (!*up) park();
}

void Process::breathe() {
  if (dead_) throw Killed{};
  if (doom_ >= 0 && doom_-- == 0 && world_.may_die(*this)) {
    world_.note(*this, "dies here");
    world_.kill(*this);
    throw Killed{};
  }
  sleep(world_.rng().between(Nanos(100), microseconds(10)));
}

void Process::wake() {
  if (dead_ || std::exchange(waking_, true)) return;
  later(world_.rng().between(Nanos(100), microseconds(5)), [this] {
    waking_ = false;
    if (parked_) run();
  });
}

void Process::later(Nanos delay, std::function<void()> action) {
  world_.scheduler().after(delay, [this, action = std::move(action)]() mutable {
    if (dead_) return;
    if (stopped_) {
      held_back_.push_back(std::move(action));
      return;
    }
    action();
  });
}

}  // namespace pliant::sim
