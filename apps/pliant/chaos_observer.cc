#include "apps/pliant/chaos_observer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/pliant/coordinator_note.h"
#include "apps/pliant/status_file.h"

namespace pliant::cli::chaos {
namespace {

constexpr double kTrustedAfter = 2;  // seconds as a member, where no records say more

/// Directories of the job's hosts on this machine.
std::vector<std::string> parts_of(const std::string& base, const std::string& job) {
  std::vector<std::string> parts;
  std::error_code problem;
  for (std::filesystem::directory_iterator entry(base, problem), end; !problem && entry != end;
       entry.increment(problem))
    if (entry->path().filename().string().starts_with(part_name(job, ""))) parts.push_back(entry->path().string());
  std::ranges::sort(parts);
  return parts;
}

}  // namespace

Observer::Observer(std::string base, std::string dir, std::string records)
    : base_(std::move(base)), dir_(std::move(dir)), trail_(std::move(records)) {}

bool Observer::look() {
  auto now = unix_seconds();
  auto job = read_job(dir_);
  trail_.poll();
  if (job) look_at_progress(now);
  workers_.clear();
  agents_.clear();
  if (!job || !job->running()) return false;
  job_ = std::move(*job);
  look_at_view(dir_);
  std::vector<Job> parts;
  if (job_.record.plan.spread())
    for (const auto& dir : parts_of(base_, job_.record.name)) {
      look_at_view(dir);
      if (auto part = read_job(dir)) parts.push_back(std::move(*part));
    }
  std::erase_if(member_since_, [&](const auto& member) { return !ranks_.contains(member.first); });
  for (const auto& [id, rank] : ranks_) member_since_.try_emplace(id, now);
  look_at(job_, now);
  for (const auto& part : parts) look_at(part, now);
  return true;
}

void Observer::look_at(const Job& part, double now) {
  if (part.agent_alive) agents_.push_back({part.record.host.name, part.record.agent});
  for (const auto& worker : part.record.workers) {
    if (!alive(worker.process)) continue;
    auto since = member_since_.find(worker.id);
    workers_[worker.id] = {worker.process, part.record.host.name, since == member_since_.end() ? now : since->second};
  }
}

/// The coordinator's note, wherever the coordinator is: the newest view counts, and of two with the same one that of a
/// coordinator that runs.
void Observer::look_at_view(const std::string& dir) {
  auto note = read_note(dir);
  if (!note) return;
  std::pair place(note->memory.view.epoch, note->memory.view.term);
  if (place < view_ || (place == view_ && alive(coordinator_) && !alive(note->process))) return;
  view_ = place;
  wanted_ = note->memory.wanted;
  coordinator_ = note->process;
  ranks_.clear();
  for (const auto& member : note->memory.view.members) ranks_[member.id] = note->memory.view.rank_of(member.id);
}

void Observer::look_at_progress(double now) {
  auto seen = read_status(dir_);
  if (seen && seen->progress) steps_ = std::max(steps_, seen->progress->steps);
  auto step = trail_.dir().empty() ? (seen && seen->progress ? seen->progress->step : 0) : trail_.newest().value_or(0);
  if (step == step_) return;
  step_ = step;
  stepped_at_ = now;
  if (trail_.dir().empty()) seen_.try_emplace({0, step}, StepTime{now, seen->progress->epoch});
}

bool Observer::holds_state(std::uint64_t id, const Worker& worker, const Marks& marks) const {
  auto resumed = marks.resumed.find(id);
  double since = resumed == marks.resumed.end() ? 0 : resumed->second;
  if (trail_.dir().empty()) return unix_seconds() - std::max(since, worker.member_since) >= kTrustedAfter;
  auto last = trail_.last_of(id);
  if (!last || last->t <= since) return false;
  return std::ranges::all_of(workers_, [&](const auto& other) {
    auto theirs = trail_.last_of(other.first);
    return !theirs || theirs->view <= last->view;
  });
}

Situation Observer::situation(const Marks& marks) const {
  Situation now;
  for (const auto& [id, worker] : workers_) {
    WorkerSeen seen{id, worker.host};
    seen.member = ranks_.contains(id);
    seen.holds_state = seen.member && holds_state(id, worker, marks);
    seen.struck = marks.struck.contains(id);
    auto stopped = marks.stopped.find(id);
    seen.stopped = stopped != marks.stopped.end() && stopped->second > 0;
    now.workers.push_back(std::move(seen));
  }
  now.wanted = wanted_;
  now.coordinator = alive(coordinator_);
  now.agent = job_.agent_alive;
  return now;
}

std::optional<ProcessId> Observer::worker(std::uint64_t id) const {
  auto found = workers_.find(id);
  if (found == workers_.end()) return std::nullopt;
  return found->second.process;
}

std::string Observer::words(std::uint64_t id) const {
  auto process = worker(id).value_or(ProcessId{});
  auto rank = ranks_.find(id);
  auto place = rank == ranks_.end() ? std::string("no member") : fmt::format("rank {}", rank->second);
  return fmt::format("worker {} ({}, process {})", id, place, process.pid);
}

std::string records_of(const Job& job) {
  constexpr std::string_view kKey = "PLIANT_RECORD=";
  std::string dir;
  for (const auto& entry : job.record.plan.env)
    if (entry.starts_with(kKey)) dir = entry.substr(kKey.size());
  return dir;
}

std::string objection_to(const Job& job) {
  if (auto own = open_job(job.dir); !own.ok() && own.error().code == Code::refused) return own.error().message;
  std::vector<ProcessId> all = {job.record.agent, job.coordinator};
  for (const auto& worker : job.record.workers) all.push_back(worker.process);
  for (const auto& process : all)
    if (auto opened = open_own_process(process); !opened.ok() && opened.error().code == Code::refused)
      return opened.error().message;
  return {};
}

Result<Fd> open_own_process(const ProcessId& process) {
  auto opened = open_process(process);
  if (!opened.ok()) return opened;
  if (process.pid <= 2 || user_of(process.pid) != geteuid())
    return Error{Code::refused, fmt::format("process {} belongs to another user", process.pid)};
  return opened;
}

}  // namespace pliant::cli::chaos
