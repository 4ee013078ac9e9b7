// `pliant stop`: asks the agent, and does the agent's work where it is gone.
#include <fmt/format.h>
#include <poll.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include "apps/pliant/ask.h"
#include "apps/pliant/coordinator_note.h"
#include "apps/pliant/jobs.h"
#include "base/clock.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kMargin = 10s;       // for an agent to finish after the last worker is gone
constexpr Nanos kForcedMargin = 2s;  // before an agent that does not react is killed

Nanos nanos(double seconds) { return std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(seconds)); }

bool ends_within(const Fd& pidfd, Nanos limit) {
  SteadyClock clock;
  auto end = clock.now() + limit;
  for (;;) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.now());
    pollfd waiting{pidfd.get(), POLLIN, 0};
    int count = poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (count > 0) return true;
    if (count == 0) return false;
  }
}

/// True once the agent is gone.
bool stop_agent(const Job& job, bool force) {
  auto pidfd = open_process(job.record.agent);
  if (!pidfd.ok()) return true;
  signal_process(pidfd.value(), force ? SIGQUIT : SIGTERM);
  if (ends_within(pidfd.value(), force ? kForcedMargin : nanos(job.record.grace) + kMargin)) return true;
  if (!force) return false;
  signal_process(pidfd.value(), SIGKILL);
  return ends_within(pidfd.value(), kMargin);
}

/// True if none of them runs any more. Each leads a group of its own number as long as it lives.
bool signal_workers(const Job& job, int signal) {
  bool none = true;
  for (const auto& worker : job.record.workers) {
    auto pidfd = open_process(worker.process);
    if (!pidfd.ok() || !alive(worker.process)) continue;
    none = false;
    if (signal) signal_group(worker.process, pidfd.value(), signal);
  }
  return none;
}

bool workers_end_within(const Job& job, Nanos limit) {
  SteadyClock clock;
  auto end = clock.now() + limit;
  while (!signal_workers(job, 0)) {
    if (clock.now() >= end) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

bool stop_workers(const Job& job, bool force) {
  if (!force) {
    signal_workers(job, SIGTERM);
    signal_workers(job, SIGCONT);
    if (workers_end_within(job, nanos(job.record.grace))) return true;
  }
  signal_workers(job, SIGKILL);
  return workers_end_within(job, kMargin);
}

/// True if nothing leads to any host any more.
bool signal_hosts(const Job& job, int signal) {
  bool none = true;
  for (const auto& host : job.record.hosts) {
    auto pidfd = open_process(host.process);
    if (!pidfd.ok() || !alive(host.process)) continue;
    none = false;
    if (signal) signal_group(host.process, pidfd.value(), signal);
  }
  return none;
}

/// Of a job on several hosts whose `pliant run` is gone: their agents are told by the coordinator.
bool stop_hosts(const Job& job, bool force) {
  if (job.record.hosts.empty()) return true;
  (void)tell_coordinator(job, wire::Stop{"", static_cast<std::uint8_t>(force)});
  SteadyClock clock;
  for (int signal : {0, SIGTERM, SIGKILL}) {
    signal_hosts(job, signal);
    auto end = clock.now() + (force ? kForcedMargin : nanos(job.record.grace) + kMargin);
    while (clock.now() < end) {
      if (signal_hosts(job, 0)) return true;
      std::this_thread::sleep_for(10ms);
    }
  }
  return false;
}

/// Without agent and workers it ends by itself, but nobody has to wait for that.
bool stop_coordinator(const Job& job) {
  auto note = read_note(job.dir);
  if (!note) return true;
  auto pidfd = open_process(note->process);
  if (!pidfd.ok()) return true;
  signal_process(pidfd.value(), SIGTERM);
  if (ends_within(pidfd.value(), kForcedMargin)) return true;
  signal_process(pidfd.value(), SIGKILL);
  return ends_within(pidfd.value(), kMargin);
}

int stop(const std::string& name, bool force) {
  auto found = choose_job(name);
  if (!found.ok()) {
    fmt::print(stderr, "pliant stop: {}\n", found.error().message);
    return 1;
  }
  const auto& job = found.value();
  if (job.agent_alive && !stop_agent(job, force)) {
    fmt::print(stderr, "pliant stop: the agent of job '{}' (process {}) does not end; 'pliant stop --force' kills it\n",
               job.record.name, job.record.agent.pid);
    return 1;
  }
  if (!stop_hosts(job, force)) {
    fmt::print(stderr, "pliant stop: some hosts of job '{}' do not end\n", job.record.name);
    return 1;
  }
  if (!stop_workers(job, force)) {
    fmt::print(stderr, "pliant stop: some workers of job '{}' do not end\n", job.record.name);
    return 1;
  }
  stop_coordinator(job);
  sweep(job.base(), job.dir);
  fmt::print("stopped {}\n", job.record.name);
  return 0;
}

}  // namespace

void add_stop(CLI::App& app, Action& action) {
  struct Flags {
    std::string job;
    bool force = false;
  };
  auto* command = app.add_subcommand("stop", "Stop a job and wait until it is gone");
  command->footer(
      "Workers get SIGTERM, and SIGKILL after the job's grace time. Works too if the job's agent is gone.\n\n"
      "Examples:\n  pliant stop\n  pliant stop night --force");
  auto flags = std::make_shared<Flags>();
  command->add_option("JOB", flags->job, "Name of the job (default: the only one that runs)");
  command->add_flag("--force", flags->force, "Kill at once");
  command->callback([flags, &action] { action = [flags] { return stop(flags->job, flags->force); }; });
}

}  // namespace pliant::cli
