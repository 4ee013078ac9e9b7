#include "apps/pliant/worker_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/own_files.h"

namespace pliant::cli {
namespace {

/// Per worker two files, a pidfd, a connection and one that has not joined yet.
rlim_t files_for(std::uint32_t workers) { return static_cast<rlim_t>(5) * workers + 160; }

}  // namespace

WorkerSet::WorkerSet(net::Loop& loop, Console& console, WorkerSetOptions options, std::function<void()> on_end)
    : loop_(loop), console_(console), options_(std::move(options)), on_end_(std::move(on_end)) {}

WorkerSet::~WorkerSet() {
  for (const auto& worker : workers_)
    if (worker.process.running()) loop_.unwatch(worker.process.pidfd());
}

Status WorkerSet::prepare(std::uint32_t wanted, std::uint32_t most) {
  getrlimit(RLIMIT_NOFILE, &before_);
  files_ = before_;
  if (before_.rlim_max < files_for(wanted))
    return Error{Code::io, fmt::format("{} workers need {} open files, the limit is {} (raise 'ulimit -n')", wanted,
                                       files_for(wanted), before_.rlim_max)};
  files_.rlim_cur = std::max(before_.rlim_cur, std::min(files_for(most), before_.rlim_max));
  if (setrlimit(RLIMIT_NOFILE, &files_) != 0) return errno_error("cannot raise the limit on open files");
  if (auto made = make_directories(options_.output_dir); !made.ok()) return Error{Code::io, made.error().message};
  auto opened = OwnDirectory::open(options_.output_dir, Links::own);
  if (opened.ok()) return {};
  return Error{Code::io, opened.error().message + " (workers' output wants a folder that is yours alone)"};
}

Result<const Worker*> WorkerSet::start(std::uint64_t id) {
  SpawnOptions spawn;
  spawn.path = options_.program;
  spawn.argv = options_.argv;
  spawn.env = environment_of(id, options_.env, options_.environment);
  spawn.files = before_;
  spawn.own_session = true;  // the agent may be killed while the worker is stopped
  spawn.out = fmt::format("{}/rank-{}.out", options_.output_dir, id);
  spawn.err = fmt::format("{}/rank-{}.err", options_.output_dir, id);
  std::error_code ignored;
  std::filesystem::remove(note_file(options_.env.dir, id), ignored);  // of another process with this id
  auto process = WatchedProcess::spawn(spawn);
  if (!process.ok()) return process.error();
  add({id, std::move(process).value(), clock_.now(), spawn.out, spawn.err});
  if (auto followed = follow(workers_.back(), false); !followed.ok()) return followed.error();
  return &workers_.back();
}

Result<bool> WorkerSet::take_up(const WorkerRecord& record) {
  auto process = WatchedProcess::take_up(record.process);
  if (!process.ok()) return false;
  add({record.id, std::move(process).value(), clock_.now(), record.out, record.err});
  PLIANT_TRY(follow(workers_.back(), true));
  return true;
}

void WorkerSet::add(Worker worker) {
  if (auto group = group_of(worker.process.id().pid)) groups_.insert(*group);
  workers_.push_back(std::move(worker));
  loop_.watch(workers_.back().process.pidfd(), on_end_);
}

Status WorkerSet::follow(const Worker& worker, bool from_now) {
  auto mode = options_.output;
  if (mode == OutputMode::quiet || (mode == OutputMode::rank0 && worker.id != 0)) return {};
  auto prefix = mode == OutputMode::prefix ? fmt::format("[{}] ", worker.id) : std::string();
  for (auto stream : {Stream::out, Stream::err}) {
    auto tail = OutputTail::open(stream == Stream::out ? worker.out : worker.err, stream, prefix, from_now);
    if (!tail.ok()) return tail.error();
    tails_.push_back({worker.id, std::move(tail).value()});
  }
  return {};
}

std::vector<Worker*> WorkerSet::reap() {
  std::vector<Worker*> ended;
  for (auto& worker : workers_) {
    if (!worker.process.reap()) continue;
    loop_.unwatch(worker.process.pidfd());
    ended.push_back(&worker);
  }
  return ended;
}

void WorkerSet::forget(std::uint64_t id) {
  std::erase_if(workers_, [&](const Worker& worker) { return worker.id == id && !worker.process.running(); });
  std::erase_if(groups_, is_empty);
}

void WorkerSet::signal(int number) const {
  for (const auto& worker : workers_) worker.process.signal_group(number);
}

int WorkerSet::alive() const {
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.process.running(); }));
}

const Worker* WorkerSet::find(std::uint64_t id) const {
  auto at = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& worker) { return worker.id == id; });
  return at == workers_.end() ? nullptr : &*at;
}

void WorkerSet::copy_output() {
  std::erase_if(tails_, [&](Followed& followed) {
    followed.tail.poll(console_);
    return !find(followed.worker) && followed.tail.drain(console_);
  });
}

bool WorkerSet::drain_output() {
  bool all = true;
  for (auto& followed : tails_) all = followed.tail.drain(console_) && all;
  return all;
}

}  // namespace pliant::cli
