// The public classes, thin over session::Runtime.
#include <cxxabi.h>
#include <pliant/pliant.h>

#include <cmath>
#include <cstdlib>
#include <exception>
#include <numbers>

#include "base/hash.h"
#include "session/runtime.h"

namespace pliant {

// ---- random streams ----

RandomStream::RandomStream(std::uint64_t seed, std::uint64_t epoch, std::uint64_t step, std::uint64_t slot)
    : key_(combine(combine(combine(combine(hash_name("stream"), seed), epoch), step), slot)) {}

RandomStream::result_type RandomStream::operator()() { return mix64(key_ + 0x9e3779b97f4a7c15ULL * counter_++); }

double RandomStream::uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

std::uint64_t RandomStream::below(std::uint64_t limit) {
  // The high half of a 128-bit product: no division, and a bias below 2^-32 for any limit up to 2^32.
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>((*this)()) * limit) >> 64);
}

double RandomStream::normal() {
  double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

// ---- state ----

namespace {

template <class T>
class SpanState final : public State {
 public:
  SpanState(std::span<T> values, Role role) : values_(values), role_(role) {}
  std::vector<StateItem> items() override {
    return {{"values", kDtypeOf<T>, values_.data(), values_.size(), role_, nullptr}};
  }

 private:
  std::span<T> values_;
  Role role_;
};

}  // namespace

StatePtr state_of(std::span<float> values, Role role) { return std::make_shared<SpanState<float>>(values, role); }
StatePtr state_of(std::span<double> values, Role role) { return std::make_shared<SpanState<double>>(values, role); }

// ---- handles ----

std::size_t Region::bytes() const { return bytes_; }
void* Region::data() { return memory_->region->input(); }

template <class T>
std::span<const T> Reduction<T>::wait() {
  runtime_->wait(reduction_);
  return {plain_ ? plain_ : static_cast<const T*>(runtime_->result_of(*reduction_)), count_};
}

void Step::log(std::string_view name, double value) { runtime_->log(name, value); }

Session::Session(std::unique_ptr<session::Runtime> runtime) : runtime_(std::move(runtime)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&& other) noexcept {
  if (this == &other) return *this;
  part();
  runtime_ = std::move(other.runtime_);
  return *this;
}
Session::~Session() { part(); }

/// A forked child has none of the session's threads: what it inherited is neither ended nor released.
void Session::part() noexcept {
  if (!runtime_) return;
  if (runtime_->inherited()) {
    (void)runtime_.release();
    return;
  }
  runtime_->leave(runtime_->unwinding());
  runtime_.reset();
}

Session Session::join(const JoinOptions& options) { return Session(session::Runtime::join(options).or_throw()); }

int Session::rank() const { return runtime_->rank(); }
int Session::size() const { return runtime_->size(); }
std::uint64_t Session::worker() const { return runtime_->worker(); }
bool Session::departed() const { return runtime_->departed(); }
Outcome Session::outcome() const { return runtime_->outcome(); }
void Session::resize(int workers) { runtime_->resize(workers); }
std::uint64_t Session::seed() const { return runtime_->seed(); }
RandomStream Session::random(std::uint64_t slot) const { return runtime_->random(slot); }

Session& Session::share(const std::string& name, StatePtr state) {
  runtime_->replicas().add(name, std::move(state));
  return *this;
}

void Session::batch(const BatchPlan& plan) { runtime_->set_batch(plan); }
void Session::workload(double relative) { runtime_->set_workload(relative); }

Session& Session::monitor(const MonitorOptions& options) {
  runtime_->adaptation().monitor(options);
  return *this;
}

Session& Session::use(const std::string& name, PolicyPtr policy) {
  runtime_->adaptation().use(name, std::move(policy));
  return *this;
}

const StepReport& Session::report() const { return runtime_->report(); }

std::map<std::string, double> Session::metrics() const {
  std::map<std::string, double> all;
  for (const auto& [name, metric] : runtime_->metrics().snapshot()) all[name] = metric.value;
  return all;
}

std::string Session::type_name(const std::type_info& type) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                   &std::free);
  return status == 0 && name ? name.get() : type.name();
}

Steps Session::steps(const StepsOptions& options) {
  runtime_->start(options);
  return Steps(runtime_.get());
}

const std::map<std::string, double>& Session::averages() const { return runtime_->averages(); }

Region Session::allocate(const std::string& name, std::size_t bytes) {
  Region region;
  region.bytes_ = bytes;
  region.memory_ = runtime_->region(name, bytes);
  return region;
}

template <class T>
Reduction<T> Session::reduce(const std::string& name, Region& region, Op op, std::size_t first, std::size_t count,
                             std::optional<double> weight) {
  auto all = region.bytes() / sizeof(T);
  Reduction<T> reduction;
  reduction.runtime_ = runtime_.get();
  reduction.count_ = count ? count : all - std::min(first, all);
  reduction.reduction_ =
      runtime_->submit({.name = name,
                        .dtype = kDtypeOf<T>,
                        .op = op,
                        .count = reduction.count_,
                        .memory = region.memory_,
                        .offset = first * sizeof(T),
                        .weight = weight.value_or(op == Op::weighted_mean ? runtime_->contribution() : 1)});
  return reduction;
}

template <class T>
Reduction<T> Session::reduce(const std::string& name, std::span<T> values, Op op, std::optional<double> weight) {
  Reduction<T> reduction;
  reduction.runtime_ = runtime_.get();
  reduction.count_ = values.size();
  reduction.plain_ = values.data();
  reduction.reduction_ =
      runtime_->submit({.name = name,
                        .dtype = kDtypeOf<T>,
                        .op = op,
                        .count = values.size(),
                        .in = values.data(),
                        .out = values.data(),
                        .weight = weight.value_or(op == Op::weighted_mean ? runtime_->contribution() : 1)});
  return reduction;
}

#define PLIANT_INSTANTIATE(T)                                                                         \
  template class Reduction<T>;                                                                        \
  template Reduction<T> Session::reduce<T>(const std::string&, Region&, Op, std::size_t, std::size_t, \
                                           std::optional<double>);                                    \
  template Reduction<T> Session::reduce<T>(const std::string&, std::span<T>, Op, std::optional<double>);
PLIANT_INSTANTIATE(float)
PLIANT_INSTANTIATE(double)
PLIANT_INSTANTIATE(Half)
PLIANT_INSTANTIATE(BFloat16)
PLIANT_INSTANTIATE(std::int8_t)
PLIANT_INSTANTIATE(std::uint8_t)
PLIANT_INSTANTIATE(std::int32_t)
PLIANT_INSTANTIATE(std::int64_t)
#undef PLIANT_INSTANTIATE

double Session::average(const std::string& name, double value, double weight) {
  return runtime_->average(name, value, weight);
}

std::pair<std::uint64_t, std::uint64_t> Session::part(std::uint64_t count) const {
  auto n = static_cast<std::uint64_t>(size());
  auto r = static_cast<std::uint64_t>(rank());
  return {count * r / n, count * (r + 1) / n};
}

std::uint64_t Session::digest() { return runtime_->digest(); }

// ---- samples and steps ----

ElasticSampler::ElasticSampler(Session& session, std::uint64_t samples, const SampleOptions& options)
    : runtime_(&session.runtime()) {
  if (options.local_batch || options.global_batch) runtime_->set_batch({options.local_batch, options.global_batch});
  runtime_->attach_sampler(samples, options.shuffle);
}

Lease ElasticSampler::next() { return runtime_->take_lease(); }
Lease ElasticSampler::peek() const { return runtime_->next_lease(); }
std::uint64_t ElasticSampler::epoch() const { return runtime_->epoch(); }
std::uint64_t ElasticSampler::steps_per_epoch() const { return runtime_->steps_per_epoch(); }

Steps::Steps(session::Runtime* runtime) : runtime_(runtime), exceptions_(std::uncaught_exceptions()) {}

Steps::~Steps() {
  if (runtime_ && std::uncaught_exceptions() > exceptions_) runtime_->fail_loop();
}

Steps::iterator Steps::begin() {
  iterator first;
  if (auto step = runtime_->begin_step()) {
    first.runtime_ = runtime_;
    first.step_ = *step;
  }
  return first;
}

Steps::iterator& Steps::iterator::operator++() {
  runtime_->end_step();
  if (auto step = runtime_->begin_step())
    step_ = *step;
  else
    runtime_ = nullptr;
  return *this;
}

}  // namespace pliant
