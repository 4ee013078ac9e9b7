#include "apps/pliant/slurm_provider.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "apps/pliant/job_dir.h"
#include "apps/pliant/output_tail.h"
#include "apps/pliant/worker_env.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kBetweenOrders = 10s;  // of scancel, if it has worked, and the Slurm job is still there
constexpr Nanos kLastWait = 1s;        // for each of the last two commands

std::vector<std::string> with(std::vector<std::string> environment, const char* entry) {
  environment.emplace_back(entry);
  return environment;
}

}  // namespace

SlurmProvider::SlurmProvider(net::Loop& loop, SlurmOptions options, SlurmPlace place, ProviderEvents events)
    : loop_(loop),
      options_(std::move(options)),
      place_(std::move(place)),
      events_(std::move(events)),
      environment_(slurm_environment(own_environment())),
      script_file_(place_.dir + "/slurm.sh"),
      timer_(loop.every(100ms, [this] { tick(); })),
      sbatch_(loop, "sbatch", place_.dir, place_.patience),
      squeue_(loop, "squeue", place_.dir, place_.patience),
      scancel_(loop, "scancel", place_.dir, place_.patience),
      fleet_(place_.dir, place_.job, clock_.now()),
      idle_(loop, options_, place_, environment_, idle_events()) {
  if (fleet_.taken_up()) blind_since_ = clock_.now();
}

SlurmProvider::~SlurmProvider() { loop_.cancel(timer_); }

// ---- what is wanted ----

std::uint32_t SlurmProvider::jobs_for(std::uint64_t slots) const {
  return static_cast<std::uint32_t>((slots + options_.slots - 1) / options_.slots);
}

void SlurmProvider::request(std::uint32_t slots) {
  wanted_ = slots;
  most_ = std::max<std::uint64_t>(slots, std::uint64_t{fleet_.useful()} * options_.slots);  // what there is may stay
}

void SlurmProvider::release(std::uint32_t slots) {
  wanted_ = std::min<std::uint64_t>(wanted_, slots);
  most_ = slots;
  give_back_surplus();
}

void SlurmProvider::tick() {
  if (ended_) return;
  for (auto* command : {&sbatch_, &squeue_, &scancel_}) command->tick();
  look();
  idle_.tick(answered_ || fleet_.empty());
  give_back_surplus();
  order();
  submit();
}

void SlurmProvider::fail(Retry& retry, const std::string& words) {
  retry.later(clock_.now());
  if (retry.is_to_be_said()) events_.on_trouble("Slurm: " + words);
}

// ---- the queue ----

void SlurmProvider::look() {
  auto now = clock_.now();
  if (squeue_.busy() || now < next_look_ || looking_.waits(now) || (fleet_.empty() && !blind_since_)) return;
  squeue_.run(squeue_words(fleet_.name()), with(environment_, "SLURM_TIME_FORMAT=%s"), "",
              [this, now](const SlurmCommand::Answer& answer) { on_queue(answer, now); });
}

void SlurmProvider::on_queue(const SlurmCommand::Answer& answer, Nanos began) {
  next_look_ = clock_.now() + kPause;
  auto entries = answer.good ? parse_queue(answer.text) : Error{Code::io, answer.words};
  if (!entries.ok()) return fail(looking_, entries.error().message);
  looking_.good();
  answered_ = true;
  if (blind_since_ && *blind_since_ <= began) blind_since_.reset();
  fleet_.expect_all(began);
  bool changed = false;
  for (const auto& entry : entries.value()) changed = meet(entry) || changed;
  auto gone = fleet_.take_missing();
  SlurmEntry nothing;
  nothing.word = "not in the queue any more";
  for (const auto& job : gone) on_over(job, nothing);
  if (changed || !gone.empty()) write_note();
  fleet_.show();
}

/// True if there is one more or one less.
bool SlurmProvider::meet(const SlurmEntry& entry) {
  bool is_new = !fleet_.find(entry.id) && entry.state != SlurmState::over;
  if (is_new) fleet_.add(entry.id, clock_.now());
  auto* job = fleet_.find(entry.id);
  if (!job) return false;  // has been over for a while
  note(*job, entry);
  if (entry.state != SlurmState::over) return is_new;
  on_over(fleet_.take(entry.id), entry);
  return true;
}

void SlurmProvider::note(FleetJob& job, const SlurmEntry& entry) {
  auto now = clock_.now();
  auto lost = job.meet(entry, now);
  if (job.runs() && *job.running_since > failed_at_ && job.age(now) >= kGoodRun) short_runs_.good();
  if (lost) events_.on_notice(*lost, entry.grace());
}

/// One that has ended by itself, and too soon, would do so again.
void SlurmProvider::on_over(const FleetJob& job, const SlurmEntry& entry) {
  auto now = clock_.now();
  auto ran = job.age(now);
  if (job.released || job.preempted || ran >= kGoodRun) return;
  failed_at_ = now;
  if (short_runs_.waits(now)) return;  // one of several that have ended together
  auto last = last_lines(slurm_output(place_.dir, job.id) + ".err", 1);
  auto why = last.empty() ? std::string() : ": " + last[0];
  if (WIFEXITED(entry.status) && WEXITSTATUS(entry.status) == kNoTicket)
    why = fmt::format(": its node does not see {} (PLIANT_DIR names a folder that all nodes see)", place_.dir);
  fail(short_runs_, fmt::format("job {} has ended after {:.0f} s ({}){}", job.id, seconds(ran), entry.words(), why));
}

// ---- more ----

void SlurmProvider::submit() {
  auto now = clock_.now();
  if (sbatch_.busy() || blind_since_ || submitting_.waits(now) || short_runs_.waits(now) ||
      fleet_.useful() >= jobs_for(wanted_))
    return;
  write_note();  // the name has to be known, whatever becomes of this process
  if (auto written = write_atomically(script_file_, slurm_script(options_, place_)); !written.ok())
    return fail(submitting_, written.error().message);
  sbatch_.run(sbatch_words(options_, place_, fleet_.name()), environment_, script_file_,
              [this](const SlurmCommand::Answer& answer) { on_submitted(answer); });
}

void SlurmProvider::on_submitted(const SlurmCommand::Answer& answer) {
  auto id = answer.good ? parse_submitted(answer.text) : Error{Code::io, answer.words};
  if (!id.ok()) {
    if (answer.good || answer.doubtful) blind_since_ = clock_.now();
    return fail(submitting_, id.error().message);
  }
  submitting_.good();
  if (!fleet_.find(id.value())) fleet_.add(id.value(), clock_.now());
  write_note();
  fleet_.show();
}

// ---- less ----

void SlurmProvider::give_back_surplus() {
  auto most = jobs_for(most_);
  while (fleet_.useful() > most) release(fleet_.least_useful());
}

void SlurmProvider::release(FleetJob& job) {
  job.released = true;
  job.next_order = clock_.now();
  job.cancel_at = clock_.now() + place_.notice + kMargin;
  fleet_.show();
}

void SlurmProvider::order() {
  auto now = clock_.now();
  std::vector<std::uint64_t> gently, for_good;
  for (const auto& job : fleet_.jobs()) {
    if (!job.released || now < job.next_order || job.state == SlurmState::leaving) continue;
    bool waits = job.state == SlurmState::waiting;
    (waits || job.told || now >= job.cancel_at ? for_good : gently).push_back(job.id);
  }
  if (!for_good.empty()) order(false, for_good);
  if (!gently.empty()) order(true, gently);
}

void SlurmProvider::order(bool gently, const std::vector<std::uint64_t>& ids) {
  if (scancel_.busy() || ordering_.waits(clock_.now())) return;
  scancel_.run(scancel_words(ids, gently), environment_, "",
               [=, this](const SlurmCommand::Answer& answer) { on_ordered(ids, gently, answer); });
}

void SlurmProvider::on_ordered(const std::vector<std::uint64_t>& ids, bool gently, const SlurmCommand::Answer& answer) {
  // The next look at the queue says what came of it: one of them may have been over already, which is no trouble. And
  // an agent must not be told twice: that would mean "at once".
  if (answer.good)
    ordering_.good();
  else if (gently || !ordering_.failed())
    ordering_.later(clock_.now());
  else
    fail(ordering_, answer.words);
  for (auto id : ids) {
    auto* job = fleet_.find(id);
    if (!job) continue;
    job->told = true;
    job->next_order = gently ? job->cancel_at : clock_.now() + (answer.good ? kBetweenOrders : Nanos(0));
  }
}

void SlurmProvider::end() {
  if (std::exchange(ended_, true)) return;
  wanted_ = most_ = 0;
  sbatch_.wait(kLastWait);
  if (fleet_.empty() && !blind_since_ && !sbatch_.busy()) return;
  if (scancel_.busy()) scancel_.leave();
  scancel_.run(scancel_words(fleet_.name()), environment_, "", [](const SlurmCommand::Answer&) {});
  scancel_.wait(kLastWait);
  scancel_.leave();
}

// ---- what is known ----

void SlurmProvider::write_note() {
  if (auto written = fleet_.write_note(); !written.ok()) fail(submitting_, written.error().message);
}

SlurmIdle::Events SlurmProvider::idle_events() {
  return {[this] { return fleet_.running(); }, [this] { events_.on_change(); },
          [this](Retry& retry, const std::string& words) { fail(retry, words); }};
}

}  // namespace pliant::cli
