#include "apps/pliant/slurm_provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "apps/pliant/job_dir.h"
#include "apps/pliant/output_tail.h"
#include "apps/pliant/worker_env.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr int kMostMissed = 3;         // answers that do not name a Slurm job: then it is gone
constexpr Nanos kBetweenOrders = 10s;  // of scancel, if it has worked, and the Slurm job is still there
constexpr Nanos kLastWait = 1s;        // for each of the last two commands

std::vector<std::string> with(std::vector<std::string> environment, const char* entry) {
  environment.emplace_back(entry);
  return environment;
}

}  // namespace

void SlurmProvider::Retry::later(Nanos now) {
  pause = std::clamp<Nanos>(pause * 2, 1s, kLongestPause);
  at = now + pause;
}

SlurmProvider::SlurmProvider(net::Loop& loop, SlurmOptions options, SlurmPlace place, ProviderEvents events)
    : loop_(loop),
      options_(std::move(options)),
      place_(std::move(place)),
      events_(std::move(events)),
      environment_(slurm_environment(own_environment())),
      note_file_(place_.dir + "/slurm"),
      script_file_(place_.dir + "/slurm.sh"),
      timer_(loop.every(100ms, [this] { tick(); })),
      sbatch_(loop, "sbatch", place_.dir, place_.patience),
      squeue_(loop, "squeue", place_.dir, place_.patience),
      scancel_(loop, "scancel", place_.dir, place_.patience),
      sinfo_(loop, "sinfo", place_.dir, place_.patience) {
  read_note();
}

SlurmProvider::~SlurmProvider() { loop_.cancel(timer_); }

// ---- what is wanted ----

std::uint32_t SlurmProvider::jobs_for(std::uint64_t slots) const {
  return static_cast<std::uint32_t>((slots + options_.slots - 1) / options_.slots);
}

void SlurmProvider::request(std::uint32_t slots) {
  wanted_ = slots;
  most_ = std::max<std::uint64_t>(slots, std::uint64_t{useful()} * options_.slots);  // what there is may stay
}

void SlurmProvider::release(std::uint32_t slots) {
  wanted_ = std::min<std::uint64_t>(wanted_, slots);
  most_ = slots;
  give_back_surplus();
}

void SlurmProvider::tick() {
  if (ended_) return;
  for (auto* command : {&sbatch_, &squeue_, &scancel_, &sinfo_}) command->tick();
  look();
  look_for_idle();
  give_back_surplus();
  order();
  submit();
}

void SlurmProvider::fail(Retry& retry, const std::string& words) {
  retry.later(clock_.now());
  if (!std::exchange(retry.said, true)) events_.on_trouble("Slurm: " + words);
}

// ---- the queue ----

void SlurmProvider::look() {
  auto now = clock_.now();
  if (squeue_.busy() || now < next_look_ || now < looking_.at || (jobs_.empty() && !blind_since_)) return;
  squeue_.run(squeue_words(name_), with(environment_, "SLURM_TIME_FORMAT=%s"), "",
              [this, now](const SlurmCommand::Answer& answer) { on_queue(answer, now); });
}

void SlurmProvider::on_queue(const SlurmCommand::Answer& answer, Nanos began) {
  next_look_ = clock_.now() + kPause;
  auto entries = answer.good ? parse_queue(answer.text) : Error{Code::io, answer.words};
  if (!entries.ok()) return fail(looking_, entries.error().message);
  looking_.good();
  answered_ = true;
  if (blind_since_ && *blind_since_ <= began) blind_since_.reset();
  for (auto& job : jobs_) job.missed += job.submitted < began;
  bool changed = false;
  for (const auto& entry : entries.value()) changed = meet(entry) || changed;
  auto is_gone = [](const Job& job) { return job.missed >= kMostMissed; };
  std::vector<Job> gone;
  std::ranges::copy_if(jobs_, std::back_inserter(gone), is_gone);
  std::erase_if(jobs_, is_gone);
  SlurmEntry nothing;
  nothing.word = "not in the queue any more";
  for (const auto& job : gone) on_over(job, nothing);
  if (changed || !gone.empty()) write_note();
  show();
}

/// True if there is one more or one less.
bool SlurmProvider::meet(const SlurmEntry& entry) {
  auto* job = find(entry.id);
  bool is_new = !job && entry.state != SlurmState::over;
  if (is_new) add(entry.id);
  job = find(entry.id);
  if (!job) return false;  // has been over for a while
  note(*job, entry);
  if (entry.state != SlurmState::over) return is_new;
  auto last = *job;
  std::erase_if(jobs_, [&](const Job& each) { return each.id == entry.id; });
  on_over(last, entry);
  return true;
}

void SlurmProvider::note(Job& job, const SlurmEntry& entry) {
  auto now = clock_.now();
  auto before = job;
  bool ran = job.state == SlurmState::running;
  bool again = entry.restarts > job.restarts || (ran && entry.state == SlurmState::waiting);
  job.missed = 0;
  job.restarts = entry.restarts;
  job.state = entry.state;
  job.host = entry.node.empty() ? "" : slurm_host(entry.node, job.id);
  job.preempted = entry.preempted || entry.word == "PREEMPTED";
  bool lost = ran && !job.released && !job.noticed && (again || entry.taken());
  job.noticed = job.state == SlurmState::leaving || (job.state == SlurmState::running && entry.taken());
  if (again) job.running_since.reset();
  if (job.state == SlurmState::running) {
    if (!job.running_since) job.running_since = now;
    if (*job.running_since > failed_at_ && now - *job.running_since >= kGoodRun) short_runs_.good();
  }
  if (lost) events_.on_notice(before.host, entry.grace());
}

/// One that has ended by itself, and too soon, would do so again.
void SlurmProvider::on_over(const Job& job, const SlurmEntry& entry) {
  auto now = clock_.now();
  auto ran = now - job.running_since.value_or(now);
  if (job.released || job.preempted || ran >= kGoodRun) return;
  failed_at_ = now;
  if (now < short_runs_.at) return;  // one of several that have ended together
  auto last = last_lines(slurm_output(place_.dir, job.id) + ".err", 1);
  fail(short_runs_, fmt::format("job {} has ended after {:.0f} s ({}){}", job.id, seconds(ran), entry.words(),
                                last.empty() ? "" : ": " + last[0]));
}

void SlurmProvider::look_for_idle() {
  auto now = clock_.now();
  bool due = now >= next_idle_look_ || running() != counted_running_;
  if (sinfo_.busy() || !due || now < idle_looking_.at || (!answered_ && !jobs_.empty())) return;
  counted_running_ = running();
  sinfo_.run(sinfo_words(options_), environment_, "", [this](const SlurmCommand::Answer& answer) {
    next_idle_look_ = clock_.now() + kIdlePause;
    auto idle = answer.good ? parse_idle(answer.text, options_.partition.empty()) : Error{Code::io, answer.words};
    auto before = std::exchange(capacity_, std::nullopt);
    if (idle.ok()) {
      capacity_ = (running() + idle.value()) * options_.slots;
      idle_looking_.good();
    } else {
      fail(idle_looking_, idle.error().message);
    }
    if (before != capacity_) events_.on_change();
  });
}

// ---- more ----

void SlurmProvider::submit() {
  auto now = clock_.now();
  if (sbatch_.busy() || blind_since_ || now < submitting_.at || now < short_runs_.at || useful() >= jobs_for(wanted_))
    return;
  write_note();  // the name has to be known, whatever becomes of this process
  if (auto written = write_atomically(script_file_, slurm_script(options_, place_)); !written.ok())
    return fail(submitting_, written.error().message);
  sbatch_.run(sbatch_words(options_, place_, name_), environment_, script_file_,
              [this](const SlurmCommand::Answer& answer) { on_submitted(answer); });
}

void SlurmProvider::on_submitted(const SlurmCommand::Answer& answer) {
  auto id = answer.good ? parse_submitted(answer.text) : Error{Code::io, answer.words};
  if (!id.ok()) {
    if (answer.good || answer.doubtful) blind_since_ = clock_.now();
    return fail(submitting_, id.error().message);
  }
  submitting_.good();
  if (!find(id.value())) add(id.value());
  write_note();
  show();
}

// ---- less ----

/// First those that wait, then those that will be taken, then the newest.
void SlurmProvider::give_back_surplus() {
  auto worth = [](const Job& job) {
    if (job.state == SlurmState::waiting) return 0;
    return job.state == SlurmState::running && !job.noticed ? 2 : 1;
  };
  auto most = jobs_for(most_);
  for (auto count = useful(); count > most; --count) {
    Job* least = nullptr;
    for (auto& job : jobs_)
      if (!job.released && (!least || worth(job) <= worth(*least))) least = &job;
    release(*least);
  }
}

void SlurmProvider::release(Job& job) {
  job.released = true;
  job.next_order = clock_.now();
  job.cancel_at = clock_.now() + place_.notice + kMargin;
  show();
}

void SlurmProvider::order() {
  auto now = clock_.now();
  std::vector<std::uint64_t> gently, for_good;
  for (const auto& job : jobs_) {
    if (!job.released || now < job.next_order || job.state == SlurmState::leaving) continue;
    bool waits = job.state == SlurmState::waiting;
    (waits || job.told || now >= job.cancel_at ? for_good : gently).push_back(job.id);
  }
  if (!for_good.empty()) order(false, for_good);
  if (!gently.empty()) order(true, gently);
}

void SlurmProvider::order(bool gently, const std::vector<std::uint64_t>& ids) {
  if (scancel_.busy() || clock_.now() < ordering_.at) return;
  scancel_.run(scancel_words(ids, gently), environment_, "",
               [=, this](const SlurmCommand::Answer& answer) { on_ordered(ids, gently, answer); });
}

void SlurmProvider::on_ordered(const std::vector<std::uint64_t>& ids, bool gently, const SlurmCommand::Answer& answer) {
  // The next look at the queue says what came of it: one of them may have been over already, which is no trouble. And
  // an agent must not be told twice: that would mean "at once".
  if (answer.good)
    ordering_.good();
  else if (gently || ordering_.pause == 0s)
    ordering_.later(clock_.now());
  else
    fail(ordering_, answer.words);
  for (auto id : ids) {
    auto* job = find(id);
    if (!job) continue;
    job->told = true;
    job->next_order = gently ? job->cancel_at : clock_.now() + (answer.good ? kBetweenOrders : Nanos(0));
  }
}

void SlurmProvider::end() {
  if (std::exchange(ended_, true)) return;
  wanted_ = most_ = 0;
  sbatch_.wait(kLastWait);
  if (jobs_.empty() && !blind_since_ && !sbatch_.busy()) return;
  if (scancel_.busy()) scancel_.leave();
  scancel_.run(scancel_words(name_), environment_, "", [](const SlurmCommand::Answer&) {});
  scancel_.wait(kLastWait);
  scancel_.leave();
}

// ---- what there is ----

SlurmProvider::Job* SlurmProvider::find(std::uint64_t id) {
  auto at = std::ranges::find_if(jobs_, [&](const Job& job) { return job.id == id; });
  return at == jobs_.end() ? nullptr : &*at;
}

void SlurmProvider::add(std::uint64_t id) {
  Job job;
  job.id = id;
  job.submitted = clock_.now();
  auto at = std::ranges::find_if(jobs_, [&](const Job& each) { return each.id > id; });
  jobs_.insert(at, std::move(job));
  auto output = slurm_output(place_.dir, id);
  if (std::ranges::find(outputs_, output) == outputs_.end()) outputs_.push_back(output);
}

std::uint32_t SlurmProvider::useful() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(jobs_, [](const Job& job) { return !job.released; }));
}

/// A line with the name, then one with each number.
void SlurmProvider::read_note() {
  std::ifstream file(note_file_);
  if (file >> name_)
    blind_since_ = clock_.now();
  else
    name_ = fmt::format("{}-{:08x}", place_.job, random_u64() & 0xffffffff);
  for (std::uint64_t id = 0; file >> id;) add(id);
  show();
}

void SlurmProvider::write_note() {
  auto text = name_ + "\n";
  for (const auto& job : jobs_) text += fmt::format("{}\n", job.id);
  if (auto written = write_atomically(note_file_, text); !written.ok()) fail(submitting_, written.error().message);
}

std::uint32_t SlurmProvider::running() const {
  auto runs = [](const Job& job) { return job.state == SlurmState::running && !job.released; };
  return static_cast<std::uint32_t>(std::ranges::count_if(jobs_, runs));
}

void SlurmProvider::show() {
  shown_.clear();
  for (const auto& job : jobs_) shown_.push_back({job.id, job.state, job.host, job.released});
}

}  // namespace pliant::cli
