#include "apps/pliant/discovery.h"

#include <fmt/format.h>

#include <csignal>

#include "apps/pliant/hosts_flags.h"
#include "apps/pliant/output_tail.h"
#include "apps/pliant/worker_env.h"

namespace pliant::cli {

using namespace std::chrono_literals;

Discovery::Discovery(net::Loop& loop, std::string script, const std::string& dir,
                     std::function<void(std::vector<HostSlots>)> on_hosts,
                     std::function<void(const std::string&)> on_trouble)
    : loop_(loop),
      script_(std::move(script)),
      answer_(dir + "/host-script.out"),
      errors_(dir + "/host-script.err"),
      on_hosts_(std::move(on_hosts)),
      on_trouble_(std::move(on_trouble)),
      timer_(loop.every(100ms, [this] { tick(); })),
      ended_(clock_.now() - kPause) {}

Discovery::~Discovery() {
  loop_.cancel(timer_);
  if (!process_) return;
  loop_.unwatch(process_->pidfd());
  process_->signal_group(SIGKILL);
}

void Discovery::tick() {
  if (process_ && clock_.now() - began_ > kPatience) process_->signal_group(SIGKILL);
  if (!process_ && clock_.now() - ended_ >= kPause) run();
}

void Discovery::run() {
  began_ = clock_.now();
  SpawnOptions spawn;
  spawn.path = "/bin/sh";
  spawn.argv = {"sh", "-c", script_};
  spawn.env = own_environment();
  spawn.out = answer_;
  spawn.err = errors_;
  getrlimit(RLIMIT_NOFILE, &spawn.files);
  auto process = WatchedProcess::spawn(spawn);
  if (!process.ok()) {
    ended_ = began_;
    return fail(process.error().message);
  }
  process_ = std::move(process).value();
  loop_.watch(process_->pidfd(), [this] { on_end(); });
}

void Discovery::on_end() {
  if (!process_ || !process_->reap()) return;
  auto ending = *process_->ending();
  loop_.unwatch(process_->pidfd());
  process_.reset();
  ended_ = clock_.now();
  auto words = last_lines(errors_, 1);
  if (!ending.good()) return fail(ending.words() + (words.empty() ? "" : ": " + words[0]));
  auto hosts = read_hostfile(answer_);
  if (!hosts.ok()) return fail(hosts.error().message);
  in_trouble_ = false;
  on_hosts_(std::move(hosts).value());
}

void Discovery::fail(const std::string& why) {
  if (!std::exchange(in_trouble_, true)) on_trouble_(fmt::format("{}: {}", script_, why));
}

}  // namespace pliant::cli
