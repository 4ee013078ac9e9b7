#include "apps/pliant/slurm_fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "apps/pliant/job_dir.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

constexpr char kNote[] = "/slurm";

}  // namespace

std::optional<std::string> FleetJob::meet(const SlurmEntry& entry, Nanos now) {
  auto before = host;
  bool ran = runs();
  bool again = entry.restarts > restarts || (ran && entry.state == SlurmState::waiting);
  missed = 0;
  restarts = entry.restarts;
  state = entry.state;
  host = entry.node.empty() ? "" : slurm_host(entry.node, id);
  preempted = entry.preempted || entry.word == "PREEMPTED";
  bool lost = ran && !released && !noticed && (again || entry.taken());
  noticed = state == SlurmState::leaving || (runs() && entry.taken());
  if (again) running_since.reset();
  if (runs() && !running_since) running_since = now;
  if (!lost) return std::nullopt;
  return before;
}

/// A line with the name, then one with each number.
SlurmFleet::SlurmFleet(const std::string& dir, const std::string& job, Nanos now) : dir_(dir), note_file_(dir + kNote) {
  std::istringstream file(read_job_file(dir, kNote).value_or(""));
  taken_up_ = static_cast<bool>(file >> name_);
  if (!taken_up_) name_ = fmt::format("{}-{:08x}", job, random_u64() & 0xffffffff);
  for (std::uint64_t id = 0; file >> id;) add(id, now);
  show();
}

Status SlurmFleet::write_note() const {
  auto text = name_ + "\n";
  for (const auto& job : jobs_) text += fmt::format("{}\n", job.id);
  return write_atomically(note_file_, text);
}

FleetJob* SlurmFleet::find(std::uint64_t id) {
  auto at = std::ranges::find_if(jobs_, [&](const FleetJob& job) { return job.id == id; });
  return at == jobs_.end() ? nullptr : &*at;
}

void SlurmFleet::add(std::uint64_t id, Nanos now) {
  FleetJob job;
  job.id = id;
  job.submitted = now;
  auto at = std::ranges::find_if(jobs_, [&](const FleetJob& each) { return each.id > id; });
  jobs_.insert(at, std::move(job));
  auto output = slurm_output(dir_, id);
  if (std::ranges::find(outputs_, output) == outputs_.end()) outputs_.push_back(output);
}

FleetJob SlurmFleet::take(std::uint64_t id) {
  auto last = *find(id);
  std::erase_if(jobs_, [&](const FleetJob& each) { return each.id == id; });
  return last;
}

void SlurmFleet::expect_all(Nanos began) {
  for (auto& job : jobs_) job.missed += job.submitted < began;
}

std::vector<FleetJob> SlurmFleet::take_missing() {
  auto is_gone = [](const FleetJob& job) { return job.missed >= kMostMissed; };
  std::vector<FleetJob> gone;
  std::ranges::copy_if(jobs_, std::back_inserter(gone), is_gone);
  std::erase_if(jobs_, is_gone);
  return gone;
}

std::uint32_t SlurmFleet::useful() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(jobs_, [](const FleetJob& job) { return !job.released; }));
}

std::uint32_t SlurmFleet::running() const {
  auto runs = [](const FleetJob& job) { return job.runs() && !job.released; };
  return static_cast<std::uint32_t>(std::ranges::count_if(jobs_, runs));
}

FleetJob& SlurmFleet::least_useful() {
  auto worth = [](const FleetJob& job) {
    if (job.state == SlurmState::waiting) return 0;
    return job.runs() && !job.noticed ? 2 : 1;
  };
  FleetJob* least = nullptr;
  for (auto& job : jobs_)
    if (!job.released && (!least || worth(job) <= worth(*least))) least = &job;
  PLIANT_ASSERT(least);
  return *least;
}

void SlurmFleet::show() {
  shown_.clear();
  for (const auto& job : jobs_) shown_.push_back({job.id, job.state, job.host, job.released});
}

}  // namespace pliant::cli
