#include "apps/pliant/coordinator_keeper.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "apps/pliant/coordinator_note.h"
#include "apps/pliant/coordinator_process.h"
#include "apps/pliant/output_tail.h"
#include "apps/pliant/worker_env.h"
#include "base/log.h"
#include "membership/signed_store.h"
#include "net/socket.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 20ms;
constexpr auto kFarTick = 100ms;
constexpr int kTimeToEnd = 2000;  // milliseconds between asking and killing

void end_process(const Fd& pidfd) {
  pollfd gone{pidfd.get(), POLLIN, 0};
  for (int signal : {SIGTERM, SIGKILL}) {
    signal_process(pidfd, signal);
    if (poll(&gone, 1, kTimeToEnd) > 0) return;
  }
}

}  // namespace

CoordinatorKeeper::CoordinatorKeeper(net::Loop& loop, KeeperOptions options, KeeperEvents events)
    : loop_(loop),
      options_(std::move(options)),
      events_(std::move(events)),
      timer_(loop.every(options_.credentials ? kFarTick : kTick, [this] { tick(); })),
      missed_since_(clock_.now()),
      starts_(options_.starts && options_.store.empty()) {
  if (options_.store.empty())
    dial(options_.address);
  else
    elect();
  loop_.post([this] { tick(); });
}

CoordinatorKeeper::~CoordinatorKeeper() {
  loop_.cancel(timer_);
  disconnect();
  if (child_) loop_.unwatch(child_->pidfd());
}

void CoordinatorKeeper::tick() {
  if (line_ && !outbox_.flush(line_)) disconnect();
  if (line_ && silent()) disconnect();
  if (hopeless_) return;
  if (election_) election_->tick(missed_for());
  if (line_ || !dialer_) return;
  dialer_->call();
  if (!line_ && !child_ && starts_ && restarts_.may_start(clock_.now())) start_child();
}

/// Time in which this process did not run does not count.
bool CoordinatorKeeper::silent() {
  auto now = clock_.now();
  bool late = now - std::exchange(ticked_, now) > kSilence / 4;
  if (late) heard_ = now;
  return !line_.is_local() && now - heard_ > kSilence;
}

void CoordinatorKeeper::dial(const std::string& address) {
  dialer_.emplace(
      loop_, address, options_.credentials, [this](net::Line line) { connected(std::move(line)); },
      [](const Error& error) { log::debug("agent: no coordinator: {}", error.message); });
}

void CoordinatorKeeper::elect() {
  agent::ElectionEvents events;
  events.offer = [this] {
    kill_own();
    return events_.offer();
  };
  events.on_trouble = events_.on_trouble;
  events.on_place = [this](const std::string& address, bool here) {
    log::debug("agent: the coordinator is at {}{}", address, here ? ", which is here" : "");
    disconnect();
    starts_ = here;
    dial(address);
    events_.on_place(address);
  };
  PLIANT_ASSERT(options_.credentials);  // a job that has a store has a secret
  membership::ValueSigner signer{options_.credentials->secret, options_.job};
  auto store = membership::open_signed_store(loop_, options_.store, std::move(signer)).or_throw();
  election_.emplace(clock_, std::move(store), options_.job, std::move(events));
}

void CoordinatorKeeper::connected(net::Line line) {
  line_ = std::move(line);
  restarts_.on_answer();
  heard_ = ticked_ = clock_.now();
  loop_.watch(line_.fd(), [this] { read(); });
  events_.on_connected();
  read();  // something may have come with the handshake
}

std::optional<Nanos> CoordinatorKeeper::missed_for() const {
  if (line_) return std::nullopt;
  return clock_.now() - missed_since_;
}

void CoordinatorKeeper::disconnect() {
  if (!line_) return;
  loop_.unwatch(line_.fd());
  line_.close();
  outbox_.clear();
  missed_since_ = clock_.now();
}

void CoordinatorKeeper::read() {
  while (line_) {
    auto received = line_.receive();
    if (!received.ok()) {
      log::debug("agent: lost the coordinator: {}", received.error().message);
      return disconnect();
    }
    if (!received.value()) return;
    heard_ = clock_.now();
    events_.on_message(received.value()->message);
  }
}

bool CoordinatorKeeper::send(const wire::Message& message) {
  if (!line_) return false;
  outbox_.push(message);
  if (outbox_.flush(line_)) return true;
  disconnect();
  return false;
}

void CoordinatorKeeper::start_child() {
  SpawnOptions spawn;
  spawn.path = "/proc/self/exe";
  spawn.argv = {"pliant", "coordinator", options_.dir};
  spawn.env = own_environment();
  spawn.out = spawn.err = err_path();
  spawn.files = options_.files;
  spawn.append = spawn.own_session = true;
  auto child = WatchedProcess::spawn(spawn);
  if (!child.ok()) return on_death(child.error().message, true);
  child_ = std::move(child).value();
  loop_.watch(child_->pidfd(), [this] { reap_child(); });
}

void CoordinatorKeeper::reap_child() {
  if (!child_ || !child_->reap()) return;
  auto ending = *child_->ending();
  log::debug("agent: coordinator {} ended: {}", child_->id().pid, ending.words());
  read();  // its last words, and the end of the connection
  loop_.unwatch(child_->pidfd());
  child_.reset();
  if (ending.code != kCoordinatorThere) on_death(ending.words(), ending.code != 0);  // else another one serves
  if (!hopeless_) tick();
}

void CoordinatorKeeper::on_death(const std::string& why, bool by_itself) {
  switch (restarts_.on_death(clock_.now(), by_itself)) {
    case agent::Restarts::Meaning::nothing:
      return;
    case agent::Restarts::Meaning::hopeless:
      return give_up(why);
    case agent::Restarts::Meaning::trouble:
      events_.on_trouble(words_of(why) + "\n    training goes on; resizes and replacements wait until it works again");
  }
}

std::string CoordinatorKeeper::words_of(const std::string& why) const {
  auto text = fmt::format("the coordinator does not stay alive: {}", why);
  for (const auto& line : last_lines(err_path(), 10)) text += "\n    " + line;
  return text;
}

void CoordinatorKeeper::give_up(const std::string& why) {
  hopeless_ = true;
  events_.on_hopeless({Code::internal, words_of(why)});
}

void CoordinatorKeeper::forget(std::function<void()> done) {
  hopeless_ = true;
  if (!election_) return done();
  election_->forget(std::move(done));
}

/// A coordinator of this host that does not answer would only be in the way of the next one here.
void CoordinatorKeeper::kill_own() {
  auto note = read_note(options_.dir);
  if (!note) return;
  if (auto pidfd = open_process(note->process); pidfd.ok()) signal_process(pidfd.value(), SIGKILL);
}

void CoordinatorKeeper::end() {
  hopeless_ = true;
  // Told before it is left alone, so that it never ends on its own account while it is being ended.
  if (auto note = read_note(options_.dir))
    if (auto pidfd = open_process(note->process); pidfd.ok()) end_process(pidfd.value());
  disconnect();
  if (!child_) return;
  loop_.unwatch(child_->pidfd());
  while (!child_->reap()) {
    child_->signal_group(SIGKILL);  // it had not come so far as to leave its note
    usleep(1000);
  }
  child_.reset();
}

}  // namespace pliant::cli
