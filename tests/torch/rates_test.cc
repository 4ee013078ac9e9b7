// The learning rate as DistributedOptimizer applies it: rules, changing batches, layers.
#include <gtest/gtest.h>
#include <pliant/torch.h>

#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "session/workers.h"

namespace pliant {
namespace {

/// Says once after which step the batch shall change.
class ChangeBatch final : public Policy {
 public:
  ChangeBatch(std::uint64_t step, std::uint64_t batch) : step_(step), batch_(batch) {}
  Action after_step(const StepReport& seen) override { return seen.step == step_ ? batch_of(batch_) : keep(); }

 private:
  std::uint64_t step_, batch_;
};

struct Run {
  std::vector<double> rates;    // as reported, by step
  std::vector<double> weights;  // after each step
};

/// One weight with the constant gradient 1 and no momentum: it falls by exactly the rate in every step.
Run run(int workers, std::uint64_t steps, const std::function<void(Session&, DistributedOptimizer&)>& set_up,
        const OptimizerOptions& options = {}) {
  Run result;
  std::mutex mutex;
  session::run_runtimes(workers, [&](std::unique_ptr<session::Runtime> runtime) {
    Session session(std::move(runtime));
    auto weight = torch::ones({1}, torch::requires_grad());
    torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(0.5));
    DistributedOptimizer optimizer(session, sgd, options);
    ElasticSampler sampler(session, 1000, {.global_batch = 12});
    set_up(session, optimizer);
    for (auto step : session.steps({.steps = steps})) {
      auto lease = sampler.next();
      optimizer.zero_grad();
      weight.sum().backward();
      optimizer.step();
      std::lock_guard lock(mutex);
      if (session.leader() && step.index() > 0) result.rates.push_back(session.report().rate);
      if (session.leader()) result.weights.push_back(weight.item<double>());
    }
    if (session.leader()) result.rates.push_back(session.report().rate);
  });
  return result;
}

TEST(Rates, ARuleIsAskedBeforeEveryUpdate) {
  auto seen = run(2, 4, [](Session&, DistributedOptimizer& optimizer) {
    optimizer.rate(rules::Rule([](const rules::Where& where) {
      EXPECT_EQ(where.batch, 12);
      EXPECT_EQ(where.workers, 2);
      EXPECT_NEAR(where.epoch, static_cast<double>(where.step) * 12 / 1000, 1e-12);
      return 0.1 * static_cast<double>(where.step + 1);
    }));
  });
  EXPECT_EQ(seen.rates, (std::vector<double>{0.1, 0.2, 0.1 * 3, 0.1 * 4}));
  EXPECT_NEAR(seen.weights.back(), 1 - (0.1 + 0.2 + 0.3 + 0.4), 1e-6);
}

TEST(Rates, WithoutARuleTheRateIsTheOptimizersOwn) {
  auto seen = run(1, 3, [](Session&, DistributedOptimizer&) {});
  EXPECT_EQ(seen.rates, (std::vector<double>{0.5, 0.5, 0.5}));
}

TEST(Rates, CompensationFollowsABatchThatAPolicyChanges) {
  auto seen = run(3, 9, [](Session& session, DistributedOptimizer& optimizer) {
    session.use<ChangeBatch>(1, 60);  // for step 3 and those after it
    optimizer.compensate({.ramp = 4});
  });
  ASSERT_EQ(seen.rates.size(), 9U);
  std::vector<double> factors{1, 1, 1, 2, 3, 4, 5, 5, 5};
  for (std::size_t i = 0; i < factors.size(); ++i) EXPECT_NEAR(seen.rates[i], 0.5 * factors[i], 1e-12) << i;
}

TEST(Rates, PoliciesScaleTheRate) {
  class Half final : public Policy {
   public:
    Action after_step(const StepReport& seen) override { return seen.step == 0 ? scale_rate(0.5) : keep(); }
  };
  auto seen = run(2, 4, [](Session& session, DistributedOptimizer&) { session.use<Half>(); });
  EXPECT_EQ(seen.rates, (std::vector<double>{0.5, 0.5, 0.25, 0.25}));
}

TEST(Rates, AdaScaleEndsTheJobWhenItHasMadeItsSteps) {
  // Gradients without noise: a step is worth one step, whatever the batch.
  auto seen = run(2, 1000, [](Session&, DistributedOptimizer& optimizer) { optimizer.adascale(1, 20); });
  EXPECT_EQ(seen.rates.size(), 20U);
  EXPECT_NEAR(seen.rates.back(), 0.5, 1e-4);
}

TEST(Rates, LayersHaveRatesOfTheirOwn) {
  OptimizerOptions lars{.layerwise = Layerwise::lars, .layers = {.trust = 0.1}};
  auto seen = run(
      2, 1, [](Session&, DistributedOptimizer&) {}, lars);
  EXPECT_NEAR(seen.weights[0], 1 - 0.5 * 0.1, 1e-6);  // weight and gradient are of norm 1
  OptimizerOptions larc{.layerwise = Layerwise::larc, .layers = {.trust = 0.1, .weight_decay = 1}};
  seen = run(
      2, 1, [](Session&, DistributedOptimizer&) {}, larc);
  EXPECT_NEAR(seen.weights[0], 1 - 0.5 * (0.1 / 2 / 0.5) * 2, 1e-6);
}

}  // namespace
}  // namespace pliant
