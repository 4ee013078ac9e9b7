// Workers from a Slurm cluster: one Slurm job for each node-place, whose script starts the host's agent there.
//
//   a Slurm job                       while                what follows
//   is missing                        it is requested      sbatch; what is refused is tried again, after 1 to 60 s
//   is one too many                   it waits             scancel
//   ...                               it runs              SIGTERM to its agent, and scancel when the notice is over
//   is to be preempted                it runs              a notice; its agent hears of it from Slurm
//   is taken without a warning        it runs              a notice of 0 s
//   was queued again                  it is requested      nothing: it comes back by itself
//   is over                           it is requested      another one
//   ... soon after its start          it is requested      another one, after 1 to 60 s
//
// All Slurm jobs of a job have one name that nobody else uses, so that those are found as well whose number was never
// learnt. Name and numbers are in a file of the job's directory: another head goes on with them.
//
// Threads: lives on its loop's thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/provider.h"
#include "apps/pliant/retry.h"
#include "apps/pliant/slurm_command.h"
#include "apps/pliant/slurm_fleet.h"
#include "apps/pliant/slurm_idle.h"
#include "apps/pliant/slurm_queue.h"
#include "base/clock.h"
#include "net/loop.h"

namespace pliant::cli {

class SlurmProvider final : public Provider {
 public:
  static constexpr Nanos kPause = std::chrono::seconds(1);     ///< between two looks at the queue
  static constexpr Nanos kGoodRun = std::chrono::seconds(10);  ///< of a Slurm job; a shorter one is a failure
  static constexpr Nanos kMargin = std::chrono::seconds(5);    ///< after the notice, before scancel

  SlurmProvider(net::Loop& loop, SlurmOptions options, SlurmPlace place, ProviderEvents events);
  ~SlurmProvider() override;

  /// Of Slurm jobs that run, and of nodes that are idle; what an account may have of those, nobody says.
  std::optional<std::uint32_t> capacity() const override { return idle_.capacity(); }
  void request(std::uint32_t slots) override;
  void release(std::uint32_t slots) override;
  std::optional<double> price() const override { return std::nullopt; }
  /// For the last moments of a process: waits for scancel, about 2 s at most; should that take longer, it goes on
  /// without us.
  void end() override;

  const std::vector<SlurmJob>& jobs() const { return fleet_.shown(); }
  /// Where agents write what they have to say: files with these names and ".out" or ".err", some of which may never be
  /// there. Grows with every new Slurm job.
  const std::vector<std::string>& outputs() const { return fleet_.outputs(); }

 private:
  void tick();
  void look();
  void on_queue(const SlurmCommand::Answer& answer, Nanos began);
  bool meet(const SlurmEntry& entry);
  void note(FleetJob& job, const SlurmEntry& entry);
  void on_over(const FleetJob& job, const SlurmEntry& entry);
  void submit();
  void on_submitted(const SlurmCommand::Answer& answer);
  void give_back_surplus();
  void order();
  void order(bool gently, const std::vector<std::uint64_t>& ids);
  void on_ordered(const std::vector<std::uint64_t>& ids, bool gently, const SlurmCommand::Answer& answer);

  SlurmIdle::Events idle_events();
  void release(FleetJob& job);
  std::uint32_t jobs_for(std::uint64_t slots) const;
  void fail(Retry& retry, const std::string& words);
  void write_note();

  net::Loop& loop_;
  SteadyClock clock_;
  const SlurmOptions options_;
  const SlurmPlace place_;
  const ProviderEvents events_;
  const std::vector<std::string> environment_;
  const std::string script_file_;
  net::Loop::Timer timer_;
  SlurmCommand sbatch_, squeue_, scancel_;

  SlurmFleet fleet_;
  SlurmIdle idle_;
  std::uint64_t wanted_ = 0;
  std::uint64_t most_ = std::numeric_limits<std::uint32_t>::max();
  std::optional<Nanos> blind_since_;  // there may be unknown ones: look before another one is submitted
  bool ended_ = false;
  Nanos next_look_{0};
  Retry submitting_, looking_, ordering_, short_runs_;
  Nanos failed_at_{0};     // when the last one was over too soon
  bool answered_ = false;  // the queue, once
};

}  // namespace pliant::cli
