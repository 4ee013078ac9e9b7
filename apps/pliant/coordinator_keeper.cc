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
#include "net/socket.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 20ms;
constexpr int kTimeToEnd = 2000;  // milliseconds between asking and killing

void end_process(const Fd& pidfd) {
  pollfd gone{pidfd.get(), POLLIN, 0};
  for (int signal : {SIGTERM, SIGKILL}) {
    signal_process(pidfd, signal);
    if (poll(&gone, 1, kTimeToEnd) > 0) return;
  }
}

}  // namespace

CoordinatorKeeper::CoordinatorKeeper(net::Loop& loop, std::string dir, std::string address, const rlimit& files,
                                     KeeperEvents events)
    : loop_(loop),
      dir_(std::move(dir)),
      address_(std::move(address)),
      files_(files),
      events_(std::move(events)),
      timer_(loop.every(kTick, [this] { tick(); })) {
  loop_.post([this] { tick(); });
}

CoordinatorKeeper::~CoordinatorKeeper() {
  loop_.cancel(timer_);
  disconnect();
  if (child_) loop_.unwatch(child_->pidfd());
}

void CoordinatorKeeper::tick() {
  if (line_ && !outbox_.flush(line_)) disconnect();
  if (hopeless_ || line_ || connect() || child_) return;
  start_child();
}

bool CoordinatorKeeper::connect() {
  auto socket = net::connect_to(address_);
  if (!socket.ok()) return false;
  line_ = net::Line::local(std::move(socket).value());
  loop_.watch(line_.fd(), [this] { read(); });
  events_.on_connected();
  return true;
}

void CoordinatorKeeper::disconnect() {
  if (!line_) return;
  loop_.unwatch(line_.fd());
  line_.close();
  outbox_.clear();
}

void CoordinatorKeeper::read() {
  while (line_) {
    auto received = line_.receive();
    if (!received.ok()) {
      log::debug("agent: lost the coordinator: {}", received.error().message);
      return disconnect();
    }
    if (!received.value()) return;
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
  spawn.argv = {"pliant", "coordinator", dir_};
  spawn.env = own_environment();
  spawn.out = spawn.err = err_path();
  spawn.files = files_;
  spawn.append = spawn.own_session = true;
  auto child = WatchedProcess::spawn(spawn);
  if (!child.ok()) return give_up(child.error().message);
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
  auto now = clock_.now();
  if (ending.code != kCoordinatorThere) deaths_.push_back(now);  // it is not dead: another one serves
  while (!deaths_.empty() && now - deaths_.front() > kTimeOfDeaths) deaths_.pop_front();
  if (deaths_.size() >= kDeaths) return give_up(ending.words());
  tick();
}

void CoordinatorKeeper::give_up(const std::string& why) {
  hopeless_ = true;
  auto text = fmt::format("the coordinator does not stay alive: {}", why);
  for (const auto& line : last_lines(err_path(), 10)) text += "\n    " + line;
  events_.on_hopeless({Code::internal, text});
}

void CoordinatorKeeper::end() {
  hopeless_ = true;
  disconnect();
  if (auto note = read_note(dir_))
    if (auto pidfd = open_process(note->process); pidfd.ok()) end_process(pidfd.value());
  if (!child_) return;
  loop_.unwatch(child_->pidfd());
  while (!child_->reap()) {
    child_->signal_group(SIGKILL);  // it had not come so far as to leave its note
    usleep(1000);
  }
  child_.reset();
}

}  // namespace pliant::cli
