// The agent's first half: everything up to the moment when all workers run.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "apps/pliant/agent.h"
#include "base/system.h"
#include "net/socket.h"

namespace pliant::cli {
namespace {

/// Makes room for a few descriptors per worker. Returns the limit as it was, which is what workers get.
Result<rlimit> raise_file_limit(int workers) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  // Per worker two files, a pidfd, a connection and one that has not joined yet.
  auto needed = static_cast<rlim_t>(5 * workers + 160);
  if (before.rlim_cur >= needed) return before;
  if (before.rlim_max < needed)
    return Error{Code::io, fmt::format("{} workers need {} open files, the limit is {} (raise 'ulimit -n')", workers,
                                       needed, before.rlim_max)};
  rlimit raised{needed, before.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) != 0) return errno_error("cannot raise the limit on open files");
  return before;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> list;
  for (char** entry = environ; entry && *entry; ++entry) list.emplace_back(*entry);
  return list;
}

}  // namespace

Status Agent::start() {
  PLIANT_TRY(watch_signals());
  PLIANT_TRY(start_coordinator());
  PLIANT_TRY(start_workers());
  return dir_.write(record_);
}

Status Agent::watch_signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // if it came to us ignored, the kernel would reap our children
  sigset_t wanted;
  sigemptyset(&wanted);
  for (int number : {SIGINT, SIGTERM, SIGQUIT}) sigaddset(&wanted, number);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&wanted, SIGHUP);  // nohup wants it ignored
  if (sigprocmask(SIG_BLOCK, &wanted, nullptr) != 0) return errno_error("sigprocmask");
  signals_ = Fd(signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals_) return errno_error("signalfd");
  return {};
}

Status Agent::start_coordinator() {
  address_ = coordinator_address(dir_.path());
  auto listener = net::listen_at(address_);
  if (!listener.ok()) return listener.error();
  CoordinatorEvents events;
  events.worker_of = [this](pid_t pid) { return worker_of(pid); };
  events.on_progress = [this](int rank, const wire::Progress& progress) { on_progress(rank, progress); };
  events.on_complaint = [this](int rank, const wire::Complaint& complaint) { on_complaint(rank, complaint); };
  server_.emplace(loop_, std::move(listener).value(),
                  membership::CoordinatorOptions{record_.name, options_.workers, options_.seed}, std::move(events));
  return {};
}

std::optional<int> Agent::worker_of(pid_t pid) const {
  for (auto ancestor : ancestry_of(pid))
    for (int rank = 0; rank < static_cast<int>(workers_.size()); ++rank)
      if (workers_[static_cast<std::size_t>(rank)].process.id().pid == ancestor) return rank;
  return std::nullopt;
}

Status Agent::start_workers() {
  auto files = raise_file_limit(options_.workers);
  if (!files.ok()) return files.error();
  std::error_code problem;
  std::filesystem::create_directories(record_.output_dir, problem);
  if (problem) return Error{Code::io, fmt::format("cannot create {}: {}", record_.output_dir, problem.message())};

  WorkerEnv env{record_.name, address_, options_.workers, options_.threads, options_.seed, options_.env};
  if (env.threads <= 0) env.threads = std::max(1, usable_cores() / options_.workers);
  SpawnOptions common{record_.program, options_.command, {}, {}, {}, files.value()};
  for (int rank = 0; rank < options_.workers; ++rank) PLIANT_TRY(start_worker(rank, common, env));
  return {};
}

Status Agent::start_worker(int rank, const SpawnOptions& common, const WorkerEnv& env) {
  auto spawn = common;
  spawn.env = environment_of(rank, env, own_environment());
  spawn.out = fmt::format("{}/rank-{}.out", record_.output_dir, rank);
  spawn.err = fmt::format("{}/rank-{}.err", record_.output_dir, rank);
  auto process = WorkerProcess::spawn(spawn);
  if (!process.ok()) return process.error();
  workers_.push_back({std::move(process).value(), clock_.now()});
  record_.workers.push_back({workers_.back().process.id(), spawn.out, spawn.err});

  if (options_.output == OutputMode::quiet || (options_.output == OutputMode::rank0 && rank != 0)) return {};
  auto prefix = options_.output == OutputMode::prefix ? fmt::format("[{}] ", rank) : std::string();
  for (auto stream : {Stream::out, Stream::err}) {
    auto tail = OutputTail::open(stream == Stream::out ? spawn.out : spawn.err, stream, prefix);
    if (!tail.ok()) return tail.error();
    tails_.push_back(std::move(tail).value());
  }
  return {};
}

/// The job could not start: ends what runs already and says why.
int Agent::abandon(const Error& error) {
  kill_workers();
  for (auto& worker : workers_) {
    while (!worker.process.reap()) usleep(1000);
  }
  say(fmt::format("pliant run: {}\n", error.message));
  if (error.code == Code::not_found) return 127;
  return error.code == Code::invalid ? 126 : 1;
}

}  // namespace pliant::cli
