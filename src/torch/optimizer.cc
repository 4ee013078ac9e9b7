#include <pliant/torch.h>

#include <cmath>
#include <set>

#include "base/fault.h"
#include "base/log.h"
#include "policy/rate_plan.h"
#include "torch/buckets.h"

namespace pliant {
namespace {

using adapter::Buckets;

/// Calls back when a parameter's gradient was accumulated.
class ReadyHook final : public torch::autograd::FunctionPostHook {
 public:
  explicit ReadyHook(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

std::vector<torch::Tensor> parameters_of(torch::optim::Optimizer& optimizer) {
  std::vector<torch::Tensor> parameters;
  std::set<const void*> seen;
  for (auto& group : optimizer.param_groups())
    for (auto& parameter : group.params())
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameters.push_back(parameter);  // tied ones once
  if (parameters.empty()) throw Failure(Code::invalid, "the optimizer has no parameters");
  return parameters;
}

class PlanState final : public State {
 public:
  explicit PlanState(std::shared_ptr<policy::RatePlan> plan) : plan_(std::move(plan)) {}
  std::vector<StateItem> items() override {
    auto& numbers = plan_->state();
    return {{"numbers", Dtype::f64, numbers.data(), numbers.size(), Role::other, plan_, {}}};
  }

 private:
  std::shared_ptr<policy::RatePlan> plan_;
};

}  // namespace

class DistributedOptimizer::Impl {
 public:
  Impl(session::Runtime& runtime, torch::optim::Optimizer& optimizer, const OptimizerOptions& options)
      : runtime_(runtime),
        inner_(optimizer),
        options_(options),
        buckets_(runtime, parameters_of(optimizer), options),
        hooked_(buckets_.size()) {
    if (options_.local_batch) runtime_.set_batch({options_.local_batch, 0});
    on_step_ = std::make_shared<std::function<void()>>([this] { begin_step(); });
    runtime_.at_step_begin(on_step_);
    on_view_ = std::make_shared<std::function<void()>>([this] { buckets_.rebind(); });
    runtime_.at_view_change(on_view_);
    runtime_.replicas().add("~gradients", buckets_.order_state());
    hook_new();
  }

  ~Impl() { *alive_ = false; }  // hooks stay in the graph's nodes and may outlive this

  void zero_grad() {
    for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_.parameter(i).mutable_grad().reset();
  }

  void synchronize() {
    if (synchronized_) return;
    close();
    buckets_.copy_mean(1);
    synchronized_ = true;
  }

  void step() {
    if (!synchronized_) close();
    norm_ = std::sqrt(buckets_.squared_norm());
    if (!finite_ && options_.skip_non_finite) {
      runtime_.count_skipped();
      if (runtime_.rank() == 0) {
        // Not by a format: LibTorch may bring headers of another fmt than the one that is linked.
        log::write(log::Level::warn,
                   "step " + std::to_string(runtime_.step()) + " is left out: its mean gradient is not finite");
      }
    } else {
      apply();
    }
    if (synchronized_)
      zero_grad();
    else
      buckets_.show_own();
    buckets_.reset();
    buckets_.learn_order();
    hook_new();
    synchronized_ = false;
  }

  void rate(rules::Rule rule) {
    plan_->set_rule(std::move(rule));
    shares_.clear();
    auto first = inner_.param_groups().front().options().get_lr();
    for (auto& group : inner_.param_groups()) shares_.push_back(first > 0 ? group.options().get_lr() / first : 1);
  }
  void compensate(const rules::Compensation::Options& options) {
    plan_->compensate(options);
    share_plan();
  }
  void adascale(double base_batch, double steps) {
    plan_->adascale(base_batch, steps);
    share_plan();
  }

  double norm() const { return norm_; }
  session::Runtime& runtime() { return runtime_; }
  torch::optim::Optimizer& inner() { return inner_; }

 private:
  /// From here on the step is everybody's: what is seen of the mean is what will be applied.
  void close() {
    buckets_.submit_rest();
    runtime_.set_rate(std::nan(""));  // until it is known; of a step that is left out it never is
    runtime_.close_step();
    finite_ = buckets_.take_results();
  }

  void begin_step() {
    if (!options_.seed_random) return;
    auto generator = at::globalContext().defaultGenerator(at::kCPU);
    std::lock_guard lock(generator.mutex());
    generator.set_current_seed(runtime_.random(static_cast<std::uint64_t>(runtime_.rank())).key());
  }

  void apply() {
    auto rates = set_rates();
    double factor = options_.clip_norm > 0 && norm_ > options_.clip_norm ? options_.clip_norm / norm_ : 1;
    bool layerwise = options_.layerwise != Layerwise::none;
    if (synchronized_) {
      if (factor != 1) {
        torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < buckets_.size(); ++i)
          if (auto& grad = buckets_.parameter(i).mutable_grad(); grad.defined()) grad.mul_(factor);
      }
    } else if (factor == 1 && !layerwise) {
      buckets_.show_mean();
    } else {
      buckets_.copy_mean(factor);
    }
    if (layerwise) weigh_layers();
    inner_.step();
    if (runtime_.adaptation().parameter_norm_due(runtime_.step())) measure_parameters();
    for (std::size_t i = 0; i < rates.size(); ++i) inner_.param_groups()[i].options().set_lr(rates[i]);
    fault::point("after_apply");
  }

  /// For the update that is due. Returns the groups' rates as scheduled, without the factor of this step.
  std::vector<double> set_rates() {
    auto& groups = inner_.param_groups();
    auto own = groups.front().options().get_lr();
    auto rate = plan_->next(runtime_.where(), runtime_.adaptation().noise(), own);
    auto factor = rate.factor * runtime_.adaptation().rate_factor();
    runtime_.set_rate(rate.scheduled * factor);
    if (plan_->done()) runtime_.adaptation().stop();
    if (factor == 1 && !plan_->has_rule()) return {};
    std::vector<double> scheduled;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      scheduled.push_back(plan_->has_rule() ? rate.scheduled * shares_.at(i) : groups[i].options().get_lr());
      groups[i].options().set_lr(scheduled[i] * factor);
    }
    return scheduled;
  }

  void measure_parameters() {
    torch::NoGradGuard no_grad;
    double squares = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      auto norm = buckets_.parameter(i).norm().item<double>();
      squares += norm * norm;
    }
    runtime_.adaptation().set_parameter_norm(std::sqrt(squares));
  }

  /// Every tensor's gradient times its own rate; weights and mean gradients are the same everywhere, and so are these.
  void weigh_layers() {
    torch::NoGradGuard no_grad;
    auto rate = inner_.param_groups().front().options().get_lr();
    const auto& layers = options_.layers;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      auto& parameter = buckets_.parameter(i);
      auto& grad = parameter.mutable_grad();
      if (!grad.defined()) continue;
      auto weights = parameter.norm().item<double>(), gradient = grad.norm().item<double>();
      if (weights == 0 || gradient == 0) continue;
      auto ratio = options_.layerwise == Layerwise::larc
                       ? rules::clipped_layerwise_ratio(weights, gradient, rate, layers)
                       : rules::layerwise_ratio(weights, gradient, layers);
      if (layers.weight_decay != 0) grad.add_(parameter, layers.weight_decay);
      grad.mul_(ratio);
    }
  }

  /// What the plan knows moves with the job.
  void share_plan() {
    if (std::exchange(plan_shared_, true)) return;
    runtime_.replicas().add("~rate", std::make_shared<PlanState>(plan_));
  }

  /// Hooks every parameter that needs a gradient and has no hook yet: frozen ones may thaw later.
  void hook_new() {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (hooked_[i] || !buckets_.parameter(i).requires_grad()) continue;
      hooked_[i] = torch::autograd::impl::grad_accumulator(buckets_.parameter(i));
      hooked_[i]->add_post_hook(std::make_unique<ReadyHook>([this, i, alive = alive_] {
        if (*alive) buckets_.ready(i);
      }));
    }
  }

  session::Runtime& runtime_;
  torch::optim::Optimizer& inner_;
  const OptimizerOptions options_;
  Buckets buckets_;
  std::vector<std::shared_ptr<torch::autograd::Node>> hooked_;  // held: an accumulator dies with its last owner
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared with the hooks
  session::Runtime::Listener on_step_, on_view_;
  std::shared_ptr<policy::RatePlan> plan_ =
      std::make_shared<policy::RatePlan>();  // shared: as state it may outlive this
  std::vector<double> shares_;               // of groups in the rate of the rule
  bool plan_shared_ = false;
  bool synchronized_ = false;
  bool finite_ = true;
  double norm_ = 0;
};

DistributedOptimizer::DistributedOptimizer(Session& session, torch::optim::Optimizer& optimizer,
                                           const OptimizerOptions& options) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer))
    throw Failure(Code::invalid,
                  "LBFGS evaluates a closure several times per step; a distributed step has one gradient");
  if (options.accumulate < 1) throw Failure(Code::invalid, "accumulate must be at least 1");
  if (options.bucket_bytes == 0) throw Failure(Code::invalid, "bucket_bytes must be at least 1");
  impl_ = std::make_unique<Impl>(session.runtime(), optimizer, options);
}

DistributedOptimizer::~DistributedOptimizer() = default;
void DistributedOptimizer::zero_grad() { impl_->zero_grad(); }
void DistributedOptimizer::synchronize() { impl_->synchronize(); }
void DistributedOptimizer::step() { impl_->step(); }
void DistributedOptimizer::rate(rules::Rule rule) { impl_->rate(std::move(rule)); }
void DistributedOptimizer::compensate(const rules::Compensation::Options& options) { impl_->compensate(options); }
void DistributedOptimizer::adascale(double base_batch, double steps) { impl_->adascale(base_batch, steps); }
double DistributedOptimizer::gradient_norm() const { return impl_->norm(); }
std::uint64_t DistributedOptimizer::skipped() const { return impl_->runtime().skipped(); }
torch::optim::Optimizer& DistributedOptimizer::inner() { return impl_->inner(); }

}  // namespace pliant
