// Pliant for any framework: join a job, share state, take samples, reduce, step. No LibTorch in here.
//
//   auto session = pliant::Session::join();                      // a job of one without `pliant run`, srun or mpirun
//   pliant::ElasticSampler sampler(session, images, {.local_batch = 64});
//   auto gradients = session.allocate("gradients", bytes);       // registered memory: others read it directly
//   session.share("weights", pliant::state_of(weights));
//   for (auto step : session.steps({.epochs = 3})) {             // the world changes only between two turns
//     auto rows = sampler.next();
//     compute(rows, gradients.input<float>());
//     auto mean = session.reduce<float>("gradients", gradients, pliant::Op::weighted_mean);
//     update(weights, mean.wait());
//     step.log("loss", loss);                                    // averaged over workers
//   }
//
// Workers may come, go and die: what was to be reduced is then reduced by those who are left, inside the call that
// waits for it. Errors are pliant::Failure. Threads: a Session belongs to one thread.
#pragma once

#include <pliant/policy.h>
#include <pliant/types.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

namespace pliant {

namespace session {
class Runtime;
}
namespace step {
struct StableRegion;
class StepReduction;
}  // namespace step

/// A stream of random numbers that depends on nothing but its key: the same (seed, epoch, step, slot) gives the same
/// numbers on every worker, in every run, whatever happened before.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t key) : key_(key) {}
  RandomStream(std::uint64_t seed, std::uint64_t epoch, std::uint64_t step, std::uint64_t slot);

  using result_type = std::uint64_t;  ///< also a generator for <random>
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()();

  double uniform();                          ///< in [0, 1)
  std::uint64_t below(std::uint64_t limit);  ///< in [0, limit); limit > 0
  double normal();                           ///< mean 0, variance 1
  std::uint64_t key() const { return key_; }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

/// What a piece of shared state is, and so what happens to it when a step commits.
enum class Role : std::uint8_t {
  parameter,  ///< replicated; equal on all workers after every step because all apply the same update
  average,    ///< differs after the forward pass; averaged by samples in every step (BatchNorm's statistics)
  counter,    ///< takes the maximum in every step
  other,      ///< replicated like parameters (optimizer state)
};

struct StateItem {
  std::string name;
  Dtype dtype = Dtype::f32;
  void* data = nullptr;
  std::size_t count = 0;
  Role role = Role::parameter;
  std::shared_ptr<const void> keep;  ///< keeps the memory alive while the item is held; may be empty
  std::vector<std::uint64_t> shape;  ///< for checkpoints; empty: one dimension of `count`

  std::size_t bytes() const { return count * size_of(dtype); }
};

/// Something that a job holds one replica of per worker.
class State {
 public:
  virtual ~State() = default;
  /// All of it, in the same order on every worker. Called between steps; items may come into being later.
  virtual std::vector<StateItem> items() = 0;
  /// Brings into being what others have already, before it is copied in: `like` are their items, without data. After
  /// this, items() has the same names, types and counts.
  virtual void prepare(const std::vector<StateItem>& like) { (void)like; }
};
using StatePtr = std::shared_ptr<State>;  ///< shared: the session and the caller both look at it

/// The caller's memory as state; it must outlive the session.
StatePtr state_of(std::span<float> values, Role role = Role::parameter);
StatePtr state_of(std::span<double> values, Role role = Role::parameter);

/// Samples that this worker takes in one step. May be empty at an epoch's end: it then contributes nothing.
struct Lease {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::vector<std::uint64_t> samples;  ///< indices into the data set

  std::size_t size() const { return samples.size(); }
  bool empty() const { return samples.empty(); }
  auto begin() const { return samples.begin(); }
  auto end() const { return samples.end(); }
};

/// Memory that other workers of the host read directly. Movable handle.
class Region {
 public:
  std::size_t bytes() const;
  /// This worker's contribution: write it, reduce, and do not touch it until the reduction is done. It stays where it
  /// is, whoever comes or goes.
  template <class T>
  std::span<T> input() {
    return {static_cast<T*>(data()), bytes_ / sizeof(T)};
  }

 private:
  friend class Session;
  friend class session::Runtime;
  void* data();
  std::size_t bytes_ = 0;                       // as asked for
  std::shared_ptr<step::StableRegion> memory_;  // shared with the session, which renews its memory
};

/// A reduction in flight. Dropping it is allowed: the reduction goes on.
template <class T>
class Reduction {
 public:
  /// Waits for it and gives the result, which stays readable until the reduction after the next of the same name is
  /// submitted. It is shared by all workers of the host: read-only.
  std::span<const T> wait();

 private:
  friend class Session;
  session::Runtime* runtime_ = nullptr;
  std::shared_ptr<step::StepReduction> reduction_;  // shared with the session, which repeats it if a worker is lost
  const T* plain_ = nullptr;
  std::size_t count_ = 0;
};

struct JoinOptions {
  /// Of a job of one; of processes that srun or mpirun started, rank 0's; under `pliant run`, --seed decides (42).
  std::optional<std::uint64_t> seed;
};

struct BatchPlan {
  std::uint64_t local = 32;  ///< samples per worker and step
  std::uint64_t global = 0;  ///< samples per step over all workers; if set, it is divided among them
  std::uint64_t limit = 0;   ///< of the global batch that `local` makes with many workers; 0: none
};

struct StepsOptions {
  std::uint64_t epochs = 0;  ///< needs a sampler
  std::uint64_t steps = 0;   ///< at most; 0: as many as the epochs have
};

struct SampleOptions {
  std::uint64_t local_batch = 0;  ///< see BatchPlan; 0: leave the session's plan
  std::uint64_t global_batch = 0;
  bool shuffle = true;  ///< a new order every epoch
};

struct MonitorOptions {
  /// Every so many steps; 0: never. Costs next to nothing: the reduction looks at what passes through it. A single
  /// worker compares two gradients in a row, which takes a copy, and so does that every 64 steps at most.
  std::uint64_t noise_scale = 1;
  std::uint64_t variance = 0;        ///< of each tensor's gradient, every so many steps; 0: never
  std::uint64_t parameter_norm = 0;  ///< every so many steps; 0: never. Reads all parameters
  double noise_memory = 0.999;       ///< what is left of a step's weight in the average after one step of one worker
};

class Steps;

/// One turn of the training loop. Rank, size, batch and rate are constants inside it.
class Step {
 public:
  std::uint64_t index() const { return index_; }
  std::uint64_t epoch() const { return epoch_; }
  /// How much of the job's work is done before this step, from 0 to 1: by samples, or by steps without a sampler. The
  /// same on all workers however many there are, were or will be: what schedules should depend on.
  double progress() const { return progress_; }
  /// Is this the last step of its epoch? Always false without a sampler.
  bool ends_epoch() const { return ends_epoch_; }
  /// Logs a value, averaged over workers by samples; on the status line with the next step.
  void log(std::string_view name, double value);
  /// The same for a tensor of one element.
  template <class Tensor>
  requires requires(const Tensor& t) { t.template item<double>(); }
  void log(std::string_view name, const Tensor& value) { log(name, value.template item<double>()); }

 private:
  friend class session::Runtime;
  session::Runtime* runtime_ = nullptr;
  std::uint64_t index_ = 0;
  std::uint64_t epoch_ = 0;
  double progress_ = 0;
  bool ends_epoch_ = false;
};

/// A worker's place in a job. Movable; one per process.
class Session {
 public:
  /// Joins the job that `pliant run` started this process for, makes one with those that srun or mpirun started
  /// together with it, or makes a job of one. Blocks until all workers have joined.
  static Session join(const JoinOptions& options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  /// Releases and says goodbye without waiting for anybody: the others go on at once. If an exception unwinds the
  /// stack, the goodbye says that this worker has failed. A forked child that destroys what it inherited ends nothing.
  ~Session();

  /// Constants inside a step. A worker that was started while the job runs is no part of it before its loop begins:
  /// until then it has a rank that nobody else has, is not the leader, and reduces with nobody. Of a program with
  /// several loops it passes those by, without a turn, that the job has behind it.
  int rank() const;
  int size() const;
  bool leader() const { return rank() == 0; }
  /// This worker's number in its job: never another's, whatever happens.
  std::uint64_t worker() const;
  /// True once this worker was told to leave (SIGTERM), and its loop has ended because of that. The job goes on without
  /// it: clean up and return.
  bool departed() const;
  /// How the loop ended: finished, stopped with the whole job, or left while the job may go on. Running before that.
  Outcome outcome() const;
  /// Asks for another number of workers, from the leader; takes effect between two later steps, if it can.
  void resize(int workers);
  std::uint64_t seed() const;
  /// The random stream of a slot in the current step. A slot is whatever the caller counts: a rank, a sample, a layer.
  RandomStream random(std::uint64_t slot) const;

  /// Adds state to what all workers hold alike. Before the first step it is copied from rank 0 to everybody.
  Session& share(const std::string& name, StatePtr state);
  /// How many samples a step takes. Inside a step: from the next one on.
  void batch(const BatchPlan& plan);
  /// How much of each batch this worker takes, relative to the others (1): 0.5 for a machine of half the speed, 0 to
  /// take nothing for a while. The batch as a whole stays what it is. From the step after the next on.
  void workload(double relative);

  /// What is measured while gradients are reduced, and how often.
  Session& monitor(const MonitorOptions& options);
  /// Asks a policy after every step; see policy.h. Before steps(), on all workers alike.
  Session& use(const std::string& name, PolicyPtr policy);
  template <class P, class... Args>
  Session& use(Args&&... args) {
    return use(type_name(typeid(P)), std::make_unique<P>(std::forward<Args>(args)...));
  }
  /// The step that was committed last.
  const StepReport& report() const;
  /// What this worker knows about itself and the job, by name: all of the report's numbers, and counters.
  std::map<std::string, double> metrics() const;

  /// The training loop. Each turn ends with a commit that all workers make, or none. A program may have several, one
  /// after the other: each goes on where the one before ended, and `options` count from the job's beginning.
  Steps steps(const StepsOptions& options);
  /// Averages of the last committed step's logs.
  const std::map<std::string, double>& averages() const;

  /// Registered memory under a name that all workers use for it.
  Region allocate(const std::string& name, std::size_t bytes);
  /// Starts to reduce `count` elements of a region, from element `first` on (all by default). Contributions to a
  /// weighted mean weigh as much as this step's lease has samples, unless `weight` says otherwise.
  template <class T>
  Reduction<T> reduce(const std::string& name, Region& region, Op op = Op::sum, std::size_t first = 0,
                      std::size_t count = 0, std::optional<double> weight = {});
  /// Starts to reduce plain memory, in place. `values` must stay until the reduction is awaited.
  template <class T>
  Reduction<T> reduce(const std::string& name, std::span<T> values, Op op = Op::sum, std::optional<double> weight = {});
  /// Reduces plain memory, in place, and waits.
  template <class T>
  void all_reduce(const std::string& name, std::span<T> values, Op op = Op::sum) {
    reduce<T>(name, values, op).wait();
  }

  /// Everybody's mean of a value, weighted: for metrics of an evaluation on all workers.
  double average(const std::string& name, double value, double weight = 1);
  /// This worker's part [begin, end) of `count` things: for evaluation.
  std::pair<std::uint64_t, std::uint64_t> part(std::uint64_t count) const;
  /// A digest of all shared state, equal on all workers or the call fails and names who deviates.
  std::uint64_t digest();

  /// For adapters and tests.
  explicit Session(std::unique_ptr<session::Runtime> runtime);
  session::Runtime& runtime() { return *runtime_; }

 private:
  static std::string type_name(const std::type_info& type);
  void part() noexcept;
  std::unique_ptr<session::Runtime> runtime_;
};

/// Deals out the samples of a data set: every sample once per epoch, whoever is there to take it. One per session.
class ElasticSampler {
 public:
  ElasticSampler(Session& session, std::uint64_t samples, const SampleOptions& options = {});
  /// This step's samples for this worker. Once per step.
  Lease next();
  /// What the following step will bring if nothing changes: for prefetching. Empty behind the last epoch.
  Lease peek() const;
  std::uint64_t epoch() const;
  std::uint64_t steps_per_epoch() const;

 private:
  session::Runtime* runtime_;
};

/// The range that Session::steps returns, which outlives it. An exception that leaves the loop while this object lives
/// ends this worker's part in the job: it has failed, and the others go on without it at once, wherever the exception
/// is caught. The session is of no use any more, and says so.
class Steps {
 public:
  Steps(Steps&& other) noexcept : runtime_(std::exchange(other.runtime_, nullptr)), exceptions_(other.exceptions_) {}
  Steps& operator=(Steps&&) = delete;
  ~Steps();

  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Step;
    using difference_type = std::ptrdiff_t;
    using pointer = const Step*;
    using reference = Step;
    Step operator*() const { return step_; }
    iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return runtime_ == nullptr; }

   private:
    friend class Steps;
    session::Runtime* runtime_ = nullptr;
    Step step_;
  };
  iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  friend class Session;
  explicit Steps(session::Runtime* runtime);
  session::Runtime* runtime_;
  int exceptions_;  // that were in flight when it was made
};

}  // namespace pliant
