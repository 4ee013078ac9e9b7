#include "simulation/agent_twin.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "simulation/offices.h"
#include "simulation/world.h"

namespace pliant::sim {
namespace {

constexpr std::uint32_t kSlots = 8;  // in all
constexpr Nanos kGrace = seconds(10);
constexpr Nanos kMargin = seconds(5);
constexpr Nanos kBetweenKills = seconds(2);
constexpr char kUnknown[] = "?";

agent::SupervisionOptions options_of(Offices& offices, const AgentTwin::Setting& setting) {
  agent::SupervisionOptions options;
  options.name = options.job = "simulated";
  options.host = setting.host;
  options.part = setting.part;
  options.attached = !offices.files(setting.name).workers.empty();
  options.wanted = static_cast<std::uint32_t>(offices.world().options().workers);
  options.grace = kGrace;
  return options;
}

}  // namespace

AgentTwin::AgentTwin(Offices& offices, Setting setting)
    : offices_(offices),
      setting_(std::move(setting)),
      supervision_(offices.world().scheduler(), options_of(offices, setting_), *this),
      lead_(static_cast<std::uint32_t>(offices.world().options().workers)),
      place_(kUnknown),
      missed_since_(offices.world().now()) {}

AgentTwin::~AgentTwin() { *alive_ = false; }

void AgentTwin::begin() {
  auto& world = offices_.world();
  log_.open(std::make_unique<record::MemorySink>(offices_.log(setting_.name)),
            [&world] { return pliant::seconds(world.now()); });
  if (!setting_.launcher) {
    offices_.files(setting_.name).agent_pid = setting_.pid;
    for (const auto& line : offices_.files(setting_.name).workers) {
      if (world.lives(line.id))
        supervision_.take_up(line.id, line.pid);
      else if (setting_.part || !line.told)
        supervision_.miss({line.id, line.pid, line.told || !setting_.part});
    }
    supervision_.on_slots(kSlots / static_cast<std::uint32_t>(world.options().hosts));
  }
  if (offices_.elects()) {
    elect();
  } else {
    place_ = offices_.home();
    starts_ = !setting_.part;
  }
  tick();
}

void AgentTwin::tick() {
  auto period = setting_.part ? milliseconds(100) : milliseconds(20);
  offices_.world().scheduler().after(period, [this, alive = alive_] {
    if (!*alive) return;
    keep_coordinator();
    if (auto stop = lead_.wish().untold(); stop && send(*stop)) lead_.wish().told();
    if (!setting_.launcher) supervision_.on_time();
    if (has_ended()) {
      log_.note("over", std::string(name_of(outcome())));
      return offices_.agent_ends(setting_.name);
    }
    tick();
  });
}

bool AgentTwin::has_ended() {
  if (setting_.launcher) return launcher_has_ended();
  return supervision_.phase() == agent::Supervision::Phase::settling && supervision_.judged();
}

/// It waits for those that it leads to, and ends them if they take too long.
bool AgentTwin::launcher_has_ended() {
  auto now = offices_.world().now();
  if (lead_.running()) {
    ending_since_.reset();
    offices_.lead_to_hosts();
    return false;
  }
  if (!ending_since_) ending_since_ = now;
  auto span = now - *ending_since_;
  if (span < kGrace + kMargin && offices_.lead_to_killed()) return false;
  if (span > kGrace + kMargin && now - told_parts_.value_or(Nanos(0)) > kBetweenKills) {
    told_parts_ = now;
    offices_.end_parts(span > kGrace + 2 * kMargin);
  }
  if (offices_.any_part_runs()) return false;
  return lead_.may_conclude(now, connection_ != 0) && lead_.conclude();
}

Outcome AgentTwin::outcome() const {
  return setting_.launcher ? lead_.verdict().outcome() : supervision_.verdict().outcome();
}

// ---- the coordinator ----

void AgentTwin::keep_coordinator() {
  auto& world = offices_.world();
  if (election_) election_->tick(missed_for());
  if (connection_ || place_ == kUnknown) return;
  connect();
  if (!connection_ && starts_ && !offices_.coordinator_at(setting_.name) && restarts_.may_start(world.now()))
    offices_.start_coordinator(setting_.name);
}

void AgentTwin::elect() {
  agent::ElectionEvents events;
  events.offer = [this]() -> Result<std::string> {
    offices_.kill_coordinator_at(setting_.name);  // it does not answer, and would only be in the way of the next one
    return "tcp:" + setting_.name;
  };
  events.on_trouble = [](const std::string&) {};
  events.on_place = [this](const std::string& address, bool here) {
    if (connection_) offices_.close(connection_);
    starts_ = here;
    place_ = address.substr(4);
    offices_.files(setting_.name).place = place_;
    offices_.world().note("{}: the coordinator is that of {}", setting_.name, place_);
  };
  election_.emplace(offices_.world().scheduler(), offices_.server().open(), "simulated", std::move(events));
}

void AgentTwin::connect() {
  connection_ = offices_.connect_agent(*this);
  if (!connection_) return;
  restarts_.on_answer();
  if (!setting_.launcher) return supervision_.on_connected();
  wire::AgentHello watching{"simulated", "", 0, ""};
  send(watching);
  send(watching);
  lead_.on_connected();
}

void AgentTwin::on_closed(std::uint64_t connection) {
  if (connection != connection_) return;
  connection_ = 0;
  missed_since_ = offices_.world().now();
}

void AgentTwin::on_coordinator_death() { restarts_.on_death(offices_.world().now(), false); }

std::optional<Nanos> AgentTwin::missed_for() const {
  if (connection_) return std::nullopt;
  return offices_.world().now() - missed_since_;
}

bool AgentTwin::send(const wire::Message& message) {
  if (!connection_) return false;
  offices_.tell(connection_, message);
  return true;
}

void AgentTwin::on_message(std::uint64_t connection, const wire::Message& message) {
  if (connection != connection_) return;
  if (std::holds_alternative<wire::Over>(message)) {
    offices_.world().note("{} hears that the job is over", setting_.name);
    offices_.heard_over();
  }
  if (setting_.launcher)
    watch_job(message);
  else
    supervision_.on_message(message);
}

void AgentTwin::watch_job(const wire::Message& message) {
  if (const auto* state = std::get_if<wire::JobState>(&message)) {
    lead_.on_state(*state);
  } else if (const auto* over = std::get_if<wire::Over>(&message)) {
    lead_.on_over(*over);
  } else if (const auto* stop = std::get_if<wire::Stop>(&message)) {
    if (lead_.heeds(*stop)) stop_job(wire::stopping_in(*stop));
  }
}

void AgentTwin::terminate() {
  offices_.world().note("{} is told to end", setting_.name);
  if (!setting_.launcher) return supervision_.on_signal(SIGTERM);
  stop_job(wire::Stopping::in_order);
}

void AgentTwin::stop_job(wire::Stopping how) {
  lead_.stop(SIGTERM);
  lead_.wish().ask(how);
}

// ---- workers ----

Result<pid_t> AgentTwin::start(std::uint64_t id) {
  auto pid = offices_.world().spawn(id, setting_.host);
  children_.insert(id);
  offices_.files(setting_.name).workers.push_back({id, pid, false});
  return pid;
}

void AgentTwin::signal(std::uint64_t id, int number) {
  auto* process = offices_.world().worker(id);
  if (!process) return;
  if (number == SIGTERM) process->notify();
  if (number == SIGCONT && process->stopped()) process->go_on();
  if (number == SIGKILL) offices_.world().kill(*process);
}

void AgentTwin::on_ended(std::uint64_t worker, const agent::Ending& ending) {
  if (setting_.launcher) return;
  auto known = ending;
  known.unknown = !children_.contains(worker);
  supervision_.on_ended({{worker, known}});
}

session::WorkerNote AgentTwin::note_of(std::uint64_t id) const { return offices_.world().note_of(id); }

void AgentTwin::note_told(std::uint64_t id) {
  for (auto& line : offices_.files(setting_.name).workers)
    if (line.id == id) line.told = true;
}

void AgentTwin::forget(std::uint64_t id) {
  std::erase_if(offices_.files(setting_.name).workers, [&](const auto& line) { return line.id == id; });
}

void AgentTwin::say(const std::string& lines) {
  auto text = lines.substr(0, lines.find('\n'));
  offices_.world().note("{} says: {}", setting_.name, text);
}

void AgentTwin::note(const std::string& what, std::uint64_t worker, const std::string& text) {
  log_.note(what, worker, text);
}

}  // namespace pliant::sim
