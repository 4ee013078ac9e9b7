// The session's inside: the step boundary. What adapters (src/torch) and the public classes are built on.
//
// A step, as this class sees it:
//   begin_step()   lease and random streams of the step are fixed
//   … the caller computes and submits reductions …
//   close_step()   buffers and the summary are exchanged: from here on everybody commits this step
//   commit         the ledger moves on, the digest of a stripe of state is taken, the next step begins
// An adapter closes the step itself (DistributedOptimizer::step); otherwise the loop does so at the turn's end.
#pragma once

#include <pliant/pliant.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collective/group.h"
#include "membership/view.h"
#include "session/coordinator_link.h"
#include "session/ledger.h"
#include "session/replicas.h"
#include "session/summary.h"

namespace pliant::session {

class Core {
 public:
  /// As the environment says: the worker of a job, or a job of one.
  static Result<std::unique_ptr<Core>> join(const JoinOptions& options);
  /// As a member of a known view; `link` may be nullptr.
  static Result<std::unique_ptr<Core>> form(const std::string& job, membership::View view, int rank, Fd listener,
                                            std::unique_ptr<CoordinatorLink> link);

  collective::Group& group() { return *group_; }
  int rank() const { return rank_; }
  int size() const { return view_.size(); }
  std::uint64_t seed() const { return view_.seed; }
  const membership::View& view() const { return view_; }

  // ---- state and samples ----
  Replicas& replicas() { return replicas_; }
  void set_batch(const BatchPlan& plan);
  void attach_sampler(std::uint64_t samples, bool shuffle);
  Lease take_lease();
  Lease next_lease() const;
  std::uint64_t epoch() const { return ledger_ ? ledger_->epoch() : 0; }
  std::uint64_t global_batch() const;
  std::uint64_t steps_per_epoch() const;
  /// Samples that this worker contributes to the current step: its lease, or the planned local batch without a sampler.
  double contribution() const;

  // ---- steps ----
  void start(const StepsOptions& options);
  /// The next step, or nothing when the job's work is done.
  std::optional<Step> begin_step();
  /// Calls `*listener` at the beginning of every step, as long as its owner keeps it.
  void at_step_begin(const std::shared_ptr<std::function<void()>>& listener) { listeners_.push_back(listener); }
  /// Exchanges buffers and the summary. Once per step; Failure if a worker is lost or replicas differ.
  void close_step();
  bool closed() const { return closed_; }
  /// Ends the turn: closes the step if nobody did, and commits.
  void end_step();
  std::uint64_t step() const { return step_; }
  RandomStream random(std::uint64_t slot) const { return {seed(), epoch(), step_, slot}; }

  void log(std::string_view name, double value);
  const std::map<std::string, double>& averages() const { return averages_; }
  void count_skipped() { ++skipped_; }
  std::uint64_t skipped() const { return skipped_; }

  // ---- collectives for everyone ----
  std::shared_ptr<collective::Operation> submit(const collective::Request& request);
  void wait(const std::shared_ptr<collective::Operation>& operation);
  double average(const std::string& name, double value, double weight);
  std::uint64_t digest();
  /// Leaves in good order, without waiting for anybody.
  void leave() { group_->leave(); }

 private:
  Core(membership::View view, int rank, std::unique_ptr<CoordinatorLink> link);
  Lease lease_of(const Ledger& ledger, std::uint64_t step) const;
  bool finished() const;
  void report_progress();
  SummaryRow own_row();
  Summary exchange_summary();
  void absorb(const Summary& summary);

  const membership::View view_;
  const int rank_;
  std::unique_ptr<CoordinatorLink> link_;  // nullptr in a job of one
  std::unique_ptr<collective::Group> group_;
  Replicas replicas_;
  SteadyClock clock_;

  BatchPlan plan_;
  std::optional<Ledger> ledger_;
  bool shuffle_ = true;
  StepsOptions options_;
  bool started_ = false;

  std::uint64_t step_ = 0;
  bool in_step_ = false;
  bool closed_ = false;
  bool leased_ = false;
  std::uint64_t lease_size_ = 0;
  Nanos step_began_{0};
  double step_seconds_ = 0;
  std::uint64_t stripe_digest_ = 0;  // of the stripe that is due, as committed
  std::vector<LogEntry> logs_;       // of the current turn
  std::map<std::string, double> averages_;
  std::uint64_t skipped_ = 0;
  std::uint64_t samples_seen_ = 0;  // by the whole job
  double samples_per_second_ = 0;   // smoothed
  std::vector<std::weak_ptr<std::function<void()>>> listeners_;
};

}  // namespace pliant::session
