#include "simulation/coordinator_twin.h"

#include <utility>

#include "simulation/offices.h"
#include "simulation/world.h"

namespace pliant::sim {
namespace {

constexpr Nanos kLoneliness = seconds(3);
constexpr Nanos kTimeToServe = seconds(5);
constexpr Nanos kTimeToHear = seconds(30);

agent::EventLog log_of(Offices& offices) {
  agent::EventLog log;
  log.open(std::make_unique<record::MemorySink>(offices.log("coordinator")),
           [&offices] { return pliant::seconds(offices.world().now()); });
  return log;
}

agent::TenureOptions tenure_of(Offices& offices, const std::string& place, bool founds) {
  return {"simulated", "tcp:" + place, offices.files(place).note, founds};
}

}  // namespace

CoordinatorTwin::CoordinatorTwin(Offices& offices, std::string place, bool founds)
    : offices_(offices),
      place_(std::move(place)),
      chronicle_(log_of(offices)),
      attended_at_(offices.world().now()),
      tenure_(offices.world().scheduler(), offices.elects() ? offices.server().open() : nullptr,
              tenure_of(offices, place_, founds),
              {[this](const auto& memory) { serve(memory); },
               [this] {
                 offices_.world().note("the coordinator of {} finds another one in its place", place_);
                 offices_.coordinator_ends(place_, Offices::HowItEnds::succeeded);
               }}) {}

CoordinatorTwin::~CoordinatorTwin() { *alive_ = false; }

void CoordinatorTwin::begin() {
  every(milliseconds(50), &CoordinatorTwin::look_around);
  every(milliseconds(500), &CoordinatorTwin::look);
  tenure_.begin();
}

void CoordinatorTwin::every(Nanos period, void (CoordinatorTwin::*what)()) {
  offices_.world().scheduler().after(period, [this, alive = alive_, period, what] {
    if (!*alive) return;
    (this->*what)();
    if (*alive) every(period, what);
  });
}

void CoordinatorTwin::serve(const std::optional<membership::Memory>& memory) {
  const auto& world = offices_.world().options();
  membership::CoordinatorOptions options;
  options.job = "simulated";
  options.seed = world.seed;
  options.wanted = static_cast<std::uint32_t>(world.workers);
  options.restarts = 1000;
  options.checkpoints = world.checkpoint_every > 0;
  chronicle_.begun(1, memory);
  offices_.world().note("the coordinator of {} begins", place_);
  Desk& desk = *this;
  reception_ = std::make_unique<agent::Reception>(offices_.world().scheduler(), options, memory, desk, chronicle_);
  reception_->begin();
  for (const auto& line : offices_.files(place_).workers)
    if (world.hosts == 1 && offices_.world().lives(line.id)) know(line.id, line.pid);
  every(milliseconds(500), &CoordinatorTwin::sweep);
  every(milliseconds(200), &CoordinatorTwin::pulse);
}

void CoordinatorTwin::sweep() { reception_->on_time(); }
void CoordinatorTwin::pulse() { reception_->pulse(); }

/// It ends by itself when the job is over and nobody is connected, or when there has been nobody for long.
void CoordinatorTwin::look_around() {
  auto now = offices_.world().now();
  if (!reception_) {
    if (now - attended_at_ >= kTimeToServe) offices_.coordinator_ends(place_, Offices::HowItEnds::lonely);
    return;
  }
  if (!watched_.empty() || reception_->anybody_placed()) {
    was_attended_ = true;
    attended_at_ = now;
    return;
  }
  bool over = was_attended_ && reception_->coordinator().over();
  bool done = over && tenure_.is_stored() && !reception_->coordinator().some_have_not_heard();
  if (done || (over && now - attended_at_ >= kTimeToHear))
    return offices_.coordinator_ends(place_, Offices::HowItEnds::over);
  if (!over && now - attended_at_ >= kLoneliness) offices_.coordinator_ends(place_, Offices::HowItEnds::lonely);
}

// ---- processes of its host ----

std::optional<std::uint64_t> CoordinatorTwin::owner_of(pid_t pid) const {
  for (const auto& [id, process] : processes_)
    if (pid != 0 && process == pid) return id;
  return std::nullopt;
}

void CoordinatorTwin::know(std::uint64_t worker, pid_t pid) {
  processes_.try_emplace(worker, pid);
  if (!watched_.contains(worker)) watch(worker, pid);
}

void CoordinatorTwin::started(std::uint64_t worker, pid_t pid) {
  processes_[worker] = pid;
  if (!watched_.contains(worker)) watch(worker, pid);
}

void CoordinatorTwin::watch(std::uint64_t worker, pid_t /*pid*/) {
  watched_.insert(worker);
  if (!offices_.world().lives(worker)) on_process_end(worker);
}

void CoordinatorTwin::on_process_end(std::uint64_t worker) {
  if (!watched_.contains(worker)) return;
  auto& world = offices_.world();
  world.scheduler().after(world.rng().between(microseconds(20), milliseconds(2)), [this, alive = alive_, worker] {
    if (*alive && watched_.erase(worker)) reception_->on_gone(worker);
  });
}

bool CoordinatorTwin::is_agent(pid_t pid) const { return offices_.files(place_).agent_pid == pid; }

session::WorkerNote CoordinatorTwin::note_of(std::uint64_t worker) const { return offices_.world().note_of(worker); }

// ---- the rest of its desk ----

void CoordinatorTwin::send(std::uint64_t link, const wire::Message& message) { offices_.say(link, message); }

void CoordinatorTwin::hang_up(std::uint64_t link) { offices_.close_after_last_word(link); }

/// What is on the way has not come: connections here hold nothing that could be read earlier.
void CoordinatorTwin::hear(std::uint64_t /*link*/) {}

void CoordinatorTwin::remember(const membership::Memory& memory) {
  offices_.files(place_).note = memory;
  tenure_.remember(memory);
}

Result<std::uint64_t> CoordinatorTwin::newest_checkpoint() {
  auto newest = offices_.world().checkpoints().newest();
  if (!newest) return Error{Code::not_found, "there is no checkpoint"};
  return *newest;
}

}  // namespace pliant::sim
