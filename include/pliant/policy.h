// Policies: code that sees what each step did and says what should change.
//
//   struct FollowNoise final : pliant::Policy {         // keep the global batch near the noise scale
//     pliant::Action after_step(const pliant::StepReport& seen) override {
//       if (seen.step % 100 || !seen.noise_scale) return pliant::keep();
//       return pliant::resize(std::clamp<int>(*seen.noise_scale / seen.local_batch, 1, 16));
//     }
//   };
//   session.use<FollowNoise>();
//
// Every worker has its own copy of a policy, and all see the same reports; so a policy that is a function of reports
// and of its own state wishes the same everywhere. What is formed after a step travels with the next one and takes
// effect after that, between two steps, if it is equal on all workers. A policy that answers differently on one worker,
// throws, or does not answer is named and not asked again; the job trains on without it.
//
// Threads: all hooks of a policy are called on one thread of its own, in order, while training goes on. They must not
// touch the model or the session.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pliant {

/// How a step's time was spent: seconds, the mean over workers.
struct StepTimes {
  double compute = 0;  ///< forward, backward, update and everything else
  double exposed = 0;  ///< waiting for reductions that did not hide behind backward
  double stall = 0;    ///< changes of view
  double input = 0;    ///< waiting for samples
  double whole() const { return compute + exposed + stall + input; }
};

/// How fast one worker computes: waiting for the others is left out.
struct WorkerSpeed {
  std::uint64_t worker = 0;
  double samples_per_second = 0;  ///< 0: it had nothing to do, or has just come
};

/// What a step was. The same on every worker, to the bit.
struct StepReport {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  bool ends_epoch = false;
  double progress = 0;  ///< of the job's work, after this step; from 0 to 1
  int size = 1;         ///< workers
  std::uint64_t local_batch = 0;
  std::uint64_t global_batch = 0;
  std::uint64_t samples = 0;  ///< that counted: fewer at an epoch's end, or if a worker was lost
  double rate = std::nan("");

  // Of the mean gradient, as far as it was measured in this step: see Session::monitor().
  double gradient_norm = std::nan("");
  double parameter_norm = std::nan("");
  /// The variance of one sample's gradient in this step, not smoothed: of each parameter tensor, in the optimizer's
  /// order, and of all. Empty, and not a number, if it was not measured, or with one worker.
  std::vector<double> variances;
  double variance = std::nan("");
  /// The batch at which a gradient is half noise, smoothed; see docs/adaptive.md.
  std::optional<double> noise_scale;
  /// What it is made of: the variance of one sample's gradient (over all parameters), and the true gradient's squared
  /// norm.
  double noise_variance = std::nan("");
  double noise_signal = std::nan("");
  /// From a single worker's consecutive gradients, between which the model has moved.
  bool noise_biased = false;

  // Of the step before: they travel with this one's summary.
  StepTimes times;
  std::vector<WorkerSpeed> speeds;         ///< by rank
  double samples_per_second = 0;           ///< smoothed
  std::map<std::string, double> averages;  ///< what was logged, and what policies have contributed
};

/// What should change after the next step. Empty: nothing.
class Action {
 public:
  std::optional<int> workers;
  bool settled = false;  ///< with workers: it will stay so, and whoever is not needed need not wait
  std::optional<std::uint64_t> global_batch;  ///< divided among the workers, however many there are
  std::optional<std::uint64_t> local_batch;   ///< per worker
  std::optional<double> rate_factor;          ///< of the scheduled rate, from then on
  std::optional<std::uint64_t> replace;       ///< this worker by another one, once there is one
  std::map<std::uint64_t, double> shares;     ///< of each batch, by worker, relative to the usual one (1)
  std::optional<std::string> topology;        ///< between hosts: "direct" is the only one there is
  bool stop = false;                          ///< the job is done
  std::string text;                           ///< a line for people

  bool empty() const {
    return !workers && !global_batch && !local_batch && !rate_factor && !replace && shares.empty() && !topology &&
           !stop && text.empty();
  }
  /// Both; where they differ, the later one.
  Action& also(const Action& other) {
    if (other.workers) workers = other.workers, settled = other.settled;
    if (other.global_batch || other.local_batch) global_batch = other.global_batch, local_batch = other.local_batch;
    if (other.rate_factor) rate_factor = other.rate_factor;
    if (other.replace) replace = other.replace;
    for (const auto& [worker, share] : other.shares) shares[worker] = share;
    if (other.topology) topology = other.topology;
    stop = stop || other.stop;
    if (!other.text.empty()) text += (text.empty() ? "" : "; ") + other.text;
    return *this;
  }
};
// All of it here, so that a shared object with a policy needs this header and nothing to link with.
inline Action keep() { return {}; }
inline Action resize(int workers) {
  Action action;
  action.workers = workers;
  return action;
}
/// So many as there are, and there shall be: the search is over.
inline Action settle_at(int workers) {
  auto action = resize(workers);
  action.settled = true;
  return action;
}
inline Action batch_of(std::uint64_t global) {
  Action action;
  action.global_batch = global;
  return action;
}
inline Action batch_per_worker(std::uint64_t local) {
  Action action;
  action.local_batch = local;
  return action;
}
inline Action scale_rate(double factor) {
  Action action;
  action.rate_factor = factor;
  return action;
}
inline Action replace(std::uint64_t worker) {
  Action action;
  action.replace = worker;
  return action;
}
inline Action share_out(std::map<std::uint64_t, double> shares) {
  Action action;
  action.shares = std::move(shares);
  return action;
}
inline Action connect_by(std::string topology) {
  Action action;
  action.topology = std::move(topology);
  return action;
}
inline Action stop() {
  Action action;
  action.stop = true;
  return action;
}
inline Action say(std::string text) {
  Action action;
  action.text = std::move(text);
  return action;
}

/// What a policy wants to know of all workers: its own numbers, which come back as averages in later reports.
class Numbers {
 public:
  void add(const std::string& name, double value) { values_[name] = value; }
  const std::map<std::string, double>& values() const { return values_; }

 private:
  std::map<std::string, double> values_;
};

class Policy {
 public:
  virtual ~Policy() = default;
  // In this order. What comes before has the report of the step before, if there was one.
  virtual Action before_train(const StepReport& /*last*/) { return keep(); }
  virtual Action before_epoch(const StepReport& /*last*/) { return keep(); }
  virtual Action before_step(const StepReport& /*last*/) { return keep(); }
  virtual Action after_step(const StepReport& /*seen*/) { return keep(); }
  virtual Action after_epoch(const StepReport& /*seen*/) { return keep(); }
  /// Nothing comes after it: only its text counts.
  virtual Action after_train(const StepReport& /*seen*/) { return keep(); }

  /// After each step; they may differ from worker to worker.
  virtual void contribute(Numbers& /*numbers*/) {}

  /// All it needs to go on elsewhere: newcomers get it, and checkpoints keep it.
  virtual std::string save() const { return {}; }
  virtual void load(std::string_view /*saved*/) {}
};
using PolicyPtr = std::unique_ptr<Policy>;

/// A policy by its name and options: "gns:max=16,every=epoch", or a shared object: "./mine.so:anything". Code::invalid
/// names what is wrong, and what there is.
PolicyPtr make_policy(std::string_view description);

}  // namespace pliant

/// Makes a shared object of a class that can be built from a text (what follows the colon): one per file.
#define PLIANT_POLICY(Class)                                                   \
  extern "C" pliant::Policy* pliant_policy(const char* options, int version) { \
    return version == 1 ? new Class(options) : nullptr;                        \
  }
