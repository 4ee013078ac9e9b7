// DistributedOptimizer with workers as threads: what it computes, and what users do to their parameters.
#include <gtest/gtest.h>
#include <pliant/torch.h>

#include <cmath>
#include <map>
#include <mutex>

#include "session/workers.h"

namespace pliant {
namespace {

namespace nn = torch::nn;

/// A data set that every worker makes alike.
torch::Tensor inputs_of(std::int64_t count, std::int64_t features) {
  return torch::sin(torch::arange(count * features, torch::kFloat32)).reshape({count, features});
}
torch::Tensor targets_of(std::int64_t count) { return torch::cos(torch::arange(count, torch::kFloat32) * 3); }

torch::Tensor rows(const torch::Tensor& all, const Lease& lease) {
  std::vector<std::int64_t> index(lease.begin(), lease.end());
  return all.index_select(0, torch::tensor(index, torch::kInt64));
}

nn::Sequential small_model() {
  torch::manual_seed(1);  // not thread-safe, so every worker's weights may differ: share() makes them alike
  return nn::Sequential(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 1));
}

/// With gradients that are large enough to be born in registered memory, two of them of one size.
nn::Sequential wide_model() {
  torch::manual_seed(1);
  return nn::Sequential(nn::Linear(4, 300), nn::Tanh(), nn::Linear(300, 300), nn::Tanh(), nn::Linear(300, 300),
                        nn::Tanh(), nn::Linear(300, 1));
}

std::mutex model_mutex;

struct Trained {
  std::vector<torch::Tensor> parameters;
  std::uint64_t digest = 0;
};

struct Recipe {
  int workers = 2;
  std::uint64_t samples = 22, epochs = 3, global_batch = 8;
  OptimizerOptions options;
  nn::Sequential (*model)() = &small_model;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)> optimizer =
      [](std::vector<torch::Tensor> p) {
        return std::make_unique<torch::optim::SGD>(p, torch::optim::SGDOptions(0.1).momentum(0.9));
      };
};

Trained train(Recipe setup) {
  setup.options.seed_random = false;
  Trained trained;
  session::run_runtimes(setup.workers, [&](std::unique_ptr<session::Runtime> runtime) {
    Session session(std::move(runtime));
    nn::Sequential model;
    {
      std::lock_guard lock(model_mutex);
      model = setup.model();
    }
    auto inner = setup.optimizer(model->parameters());
    DistributedOptimizer optimizer(session, *inner, setup.options);
    ElasticSampler sampler(session, setup.samples, {.global_batch = setup.global_batch});
    session.share("model", state_of(*model)).share("optimizer", state_of(*inner));
    auto inputs = inputs_of(static_cast<std::int64_t>(setup.samples), 4);
    auto targets = targets_of(static_cast<std::int64_t>(setup.samples));
    for (auto step : session.steps({.epochs = setup.epochs})) {
      auto lease = sampler.next();
      optimizer.zero_grad();
      if (!lease.empty()) {
        auto loss = torch::mse_loss(model->forward(rows(inputs, lease)).squeeze(1), rows(targets, lease));
        loss.backward();
        step.log("loss", loss);
      }
      optimizer.step();
    }
    auto digest = session.digest();
    if (session.leader()) {
      trained.digest = digest;
      for (auto& p : model->parameters()) trained.parameters.push_back(p.detach().clone());
    }
  });
  return trained;
}

void expect_close(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (std::size_t i = 0; i < a.parameters.size(); ++i)
    EXPECT_TRUE(torch::allclose(a.parameters[i], b.parameters[i], 1e-4, 1e-5)) << i;
}

TEST(DistributedOptimizer, AnyNumberOfWorkersLearnsWhatOneLearns) {
  // The last batch of an epoch has 6 samples: with 4 workers their parts are uneven, and the weights must tell.
  auto alone = train({.workers = 1});
  for (int workers : {2, 3, 4}) expect_close(alone, train({.workers = workers}));
}

TEST(DistributedOptimizer, TheSameSeedAndSizeGiveTheSameDigest) {
  EXPECT_EQ(train({.workers = 3}).digest, train({.workers = 3}).digest);
}

TEST(DistributedOptimizer, LargeGradientsThatAreBornInPlaceAreTheSameGradients) {
  auto alone = train({.workers = 1, .model = &wide_model});
  for (int workers : {2, 3}) expect_close(alone, train({.workers = workers, .model = &wide_model}));
  Recipe clipped{.workers = 1, .model = &wide_model};
  clipped.options.clip_norm = 0.05;
  alone = train(clipped);
  clipped.workers = 2;
  expect_close(alone, train(clipped));
}

TEST(DistributedOptimizer, SurvivesTheLossOfWorkers) {
  // Worker 1 vanishes in step 2 before its backward pass, worker 3 in step 4 after it, the others go on and stay equal.
  std::mutex mutex;
  std::map<std::uint64_t, std::vector<torch::Tensor>> ends;  // by worker; guarded by mutex
  session::run_runtimes(4, [&](std::unique_ptr<session::Runtime> runtime) {
    auto worker = runtime->worker();
    Session session(std::move(runtime));
    nn::Sequential model;
    {
      std::lock_guard lock(model_mutex);
      model = wide_model();
      model->push_back(nn::BatchNorm1d(1));
    }
    torch::optim::Adam adam(model->parameters(), 0.001);
    DistributedOptimizer optimizer(session, adam, {.bucket_bytes = 1, .seed_random = false});
    ElasticSampler sampler(session, 90, {.global_batch = 16});
    session.share("model", state_of(*model)).share("optimizer", state_of(adam));
    auto inputs = inputs_of(90, 4);
    auto targets = targets_of(90);
    for (auto step : session.steps({.epochs = 3})) {
      auto lease = sampler.next();
      optimizer.zero_grad();
      if (worker == 1 && step.index() == 2) return;
      if (lease.size() > 1)  // BatchNorm has no use for a single sample
        torch::mse_loss(model->forward(rows(inputs, lease)).squeeze(1), rows(targets, lease)).backward();
      if (worker == 3 && step.index() == 4) return;
      optimizer.step();
    }
    session.digest();
    std::lock_guard lock(mutex);
    for (auto& p : model->parameters()) ends[worker].push_back(p.detach().clone());
  });
  ASSERT_EQ(ends.size(), 2U);
  for (std::size_t i = 0; i < ends[0].size(); ++i) EXPECT_TRUE(ends[0][i].equal(ends[2][i])) << i;
}

TEST(State, WhatAnOptimizerWillHaveCanBeBroughtIntoBeing) {
  auto weight = torch::ones({3, 2}, torch::requires_grad());
  auto check = [&](auto make) {
    auto used = make(), fresh = make();
    weight.mutable_grad() = torch::ones({3, 2});
    used->step();
    auto like = state_of(*used)->items();
    auto state = state_of(*fresh);
    state->prepare(like);
    auto items = state->items();
    ASSERT_EQ(items.size(), like.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(items[i].name, like[i].name);
      EXPECT_EQ(items[i].count, like[i].count);
      EXPECT_EQ(items[i].dtype, like[i].dtype);
    }
  };
  using namespace torch::optim;
  std::vector<torch::Tensor> p{weight};
  check([&] { return std::make_unique<SGD>(p, SGDOptions(0.1).momentum(0.9)); });
  check([&] { return std::make_unique<SGD>(p, SGDOptions(0.1)); });
  check([&] { return std::make_unique<Adam>(p, AdamOptions(0.1).amsgrad(true)); });
  check([&] { return std::make_unique<AdamW>(p, AdamWOptions(0.1)); });
  check([&] { return std::make_unique<RMSprop>(p, RMSpropOptions(0.1).momentum(0.9).centered(true)); });
  check([&] { return std::make_unique<Adagrad>(p, AdagradOptions(0.1)); });
}

TEST(DistributedOptimizer, TensorsThatHooksKeepAreNotOverwritten) {
  session::run_runtimes(2, [](std::unique_ptr<session::Runtime> runtime) {
    Session session(std::move(runtime));
    auto weight = torch::full({300, 300}, 0.01F, torch::requires_grad());
    std::vector<torch::Tensor> kept;
    // Made during backward and of the gradient's size: it gets the gradient's place, and stays there.
    weight.register_hook([&](const torch::Tensor& grad) { kept.push_back(grad.clone()); });
    torch::optim::SGD sgd({weight}, 0.1);
    DistributedOptimizer optimizer(session, sgd);
    auto input = torch::full({2, 300}, static_cast<float>(session.rank() + 1));
    for (auto step : session.steps({.steps = 6})) {
      optimizer.zero_grad();
      (torch::mm(input, weight).sum() * static_cast<double>(step.index() + 1)).backward();
      optimizer.step();
    }
    ASSERT_EQ(kept.size(), 6U);
    for (std::size_t i = 0; i < kept.size(); ++i)
      EXPECT_TRUE(kept[i].eq(2.0F * static_cast<float>((session.rank() + 1) * (i + 1))).all().item<bool>()) << i;
    // The mean gradient of step i is 3·(i+1).
    EXPECT_TRUE(torch::allclose(weight, torch::full({300, 300}, 0.01F - 0.1F * 3 * 21), 1e-4, 1e-4));
  });
}

TEST(DistributedOptimizer, WorksWithOtherOptimizersAndTinyBuckets) {
  Recipe adam;
  adam.optimizer = [](std::vector<torch::Tensor> p) { return std::make_unique<torch::optim::Adam>(p, 0.01); };
  adam.options.bucket_bytes = 1;
  auto alone = adam;
  alone.workers = 1;
  expect_close(train(alone), train(adam));
  Recipe rms;
  rms.optimizer = [](std::vector<torch::Tensor> p) { return std::make_unique<torch::optim::RMSprop>(p, 0.01); };
  EXPECT_NE(train(rms).digest, 0U);
}

TEST(DistributedOptimizer, ClippingIsAFactorFromTheGlobalNorm) {
  Recipe clipped;
  clipped.options.clip_norm = 0.05;
  auto alone = clipped;
  alone.workers = 1;
  expect_close(train(alone), train(clipped));
  // And it did something.
  auto free = train({.workers = 1});
  EXPECT_FALSE(torch::allclose(free.parameters[0], train(alone).parameters[0], 1e-4, 1e-5));
}

/// Runs `body(session)` on two workers, with a plan of 4 samples each and no sampler.
void on_two(const std::function<void(Session&)>& body) {
  session::run_runtimes(2, [&](std::unique_ptr<session::Runtime> runtime) {
    Session session(std::move(runtime));
    session.batch({.local = 4});
    body(session);
  });
}

torch::Tensor parameter(float value) { return torch::full({3}, value).requires_grad_(true); }

TEST(DistributedOptimizer, UnusedParametersAreZerosHereAndUntouchedIfNobodyUsesThem) {
  on_two([](Session& session) {
    auto both = parameter(1), one = parameter(1), none = parameter(1);
    torch::optim::SGD sgd({both, one, none}, torch::optim::SGDOptions(1).weight_decay(0.5));
    DistributedOptimizer optimizer(session, sgd, {.seed_random = false});
    for (auto step : session.steps({.steps = 2})) {
      optimizer.zero_grad();
      auto loss = both.sum() * 2;
      if (session.rank() == 0) loss = loss + one.sum() * 4;
      loss.backward();
      optimizer.step();
      if (step.index() > 0) break;
      EXPECT_FLOAT_EQ(both[0].item<float>(), 1 - 2 - 0.5F);
      EXPECT_FLOAT_EQ(one[0].item<float>(), 1 - 2 - 0.5F);  // (4 + 0) / 2
      EXPECT_FLOAT_EQ(none[0].item<float>(), 1);            // not even decayed
    }
  });
}

TEST(DistributedOptimizer, FrozenParametersMayThawAndTiedOnesCountTwice) {
  on_two([](Session& session) {
    auto frozen = torch::full({3}, 1.0F);
    auto tied = parameter(1);
    torch::optim::SGD sgd({frozen, tied}, torch::optim::SGDOptions(1));
    DistributedOptimizer optimizer(session, sgd, {.seed_random = false});
    for (auto step : session.steps({.steps = 4})) {
      if (step.index() == 2) frozen.requires_grad_(true);
      optimizer.zero_grad();
      (tied.sum() + (frozen * tied).sum() * 0 + tied.sum() + frozen.sum()).backward();
      optimizer.step();
    }
    EXPECT_FLOAT_EQ(tied[0].item<float>(), 1 - 4 * 2);
    EXPECT_FLOAT_EQ(frozen[0].item<float>(), 1 - 2);
  });
}

TEST(DistributedOptimizer, ZeroedOrSetToNoneByTheUser) {
  for (bool set_to_none : {false, true})
    on_two([set_to_none](Session& session) {
      nn::Linear model(2, 1);
      torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.5));
      {
        torch::NoGradGuard no_grad;
        model->weight.fill_(0);
        model->bias.fill_(0);
      }
      DistributedOptimizer optimizer(session, sgd, {.seed_random = false});
      for (auto step : session.steps({.steps = 5})) {
        (void)step;
        if (set_to_none)
          for (auto& p : model->parameters()) p.mutable_grad().reset();
        else
          for (auto& p : model->parameters())
            if (p.grad().defined()) p.mutable_grad().zero_();
        model->forward(torch::ones({1, 2})).sum().backward();
        optimizer.step();
      }
      EXPECT_FLOAT_EQ(model->bias[0].item<float>(), -2.5F);
      EXPECT_FLOAT_EQ(model->weight[0][1].item<float>(), -2.5F);
    });
}

TEST(DistributedOptimizer, AccumulatesSeveralPassesIntoOneStep) {
  on_two([](Session& session) {
    auto p = parameter(0);
    torch::optim::SGD sgd({p}, torch::optim::SGDOptions(1));
    DistributedOptimizer optimizer(session, sgd, {.accumulate = 3, .seed_random = false});
    for (auto step : session.steps({.steps = 2})) {
      (void)step;
      optimizer.zero_grad();
      for (int pass = 1; pass <= 3; ++pass) (p.sum() * static_cast<double>(pass + session.rank())).backward();
      optimizer.step();
    }
    EXPECT_FLOAT_EQ(p[0].item<float>(), -2 * 2.5F);  // the mean of 1, 2, 3 and 2, 3, 4, twice
  });
}

TEST(DistributedOptimizer, OneBackwardTooManyIsSaidClearly) {
  auto session = Session::join();
  auto p = parameter(0);
  torch::optim::SGD sgd({p}, torch::optim::SGDOptions(1));
  DistributedOptimizer optimizer(session, sgd);
  for (auto step : session.steps({.steps = 1})) {
    (void)step;
    p.sum().backward();
    try {
      p.sum().backward();
      FAIL() << "it was let through";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("accumulate"), std::string::npos) << error.what();
    }
    optimizer.step();
  }
}

TEST(DistributedOptimizer, SynchronizeShowsTheMeanAndLetsItBeChanged) {
  on_two([](Session& session) {
    auto p = parameter(0);
    torch::optim::SGD sgd({p}, torch::optim::SGDOptions(1));
    DistributedOptimizer optimizer(session, sgd, {.seed_random = false});
    for (auto step : session.steps({.steps = 3})) {
      (void)step;
      optimizer.zero_grad();
      (p.sum() * (session.rank() == 0 ? 2.0 : 4.0)).backward();
      EXPECT_FLOAT_EQ(p.grad()[0].item<float>(), session.rank() == 0 ? 2 : 4);  // this worker's own
      optimizer.synchronize();
      EXPECT_FLOAT_EQ(p.grad()[0].item<float>(), 3);
      p.mutable_grad().mul_(10);
      optimizer.step();
    }
    EXPECT_FLOAT_EQ(p[0].item<float>(), -90);
    EXPECT_NEAR(optimizer.gradient_norm(), 3 * std::sqrt(3), 1e-5);
  });
}

TEST(DistributedOptimizer, NonFiniteGradientsOfOneWorkerSkipTheStepOnAll) {
  on_two([](Session& session) {
    auto p = parameter(1);
    torch::optim::SGD sgd({p}, torch::optim::SGDOptions(1));
    DistributedOptimizer optimizer(session, sgd, {.seed_random = false});
    for (auto step : session.steps({.steps = 4})) {
      optimizer.zero_grad();
      double factor = step.index() == 1 && session.rank() == 1 ? INFINITY : 1;
      (p.sum() * factor).backward();
      optimizer.step();
    }
    EXPECT_EQ(optimizer.skipped(), 1U);
    EXPECT_FLOAT_EQ(p[0].item<float>(), -2);
  });
}

TEST(DistributedOptimizer, BatchNormStatisticsAreAveragedAndReplicasStayEqual) {
  on_two([](Session& session) {
    nn::Sequential model(nn::Linear(4, 4), nn::BatchNorm1d(4));
    torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
    DistributedOptimizer optimizer(session, sgd, {.seed_random = false});
    session.share("model", state_of(*model));
    for (auto step : session.steps({.steps = 70})) {
      optimizer.zero_grad();
      auto x = inputs_of(4, 4) * static_cast<double>(session.rank() + 1) + static_cast<double>(step.index());
      model->forward(x).pow(2).sum().backward();
      optimizer.step();
    }
    EXPECT_NE(session.digest(), 0U);  // throws if any parameter or buffer differs
    EXPECT_EQ(model->named_buffers()["1.num_batches_tracked"].item<std::int64_t>(), 70);
  });
}

TEST(DistributedOptimizer, DoubleAndHalfParametersLiveInBucketsOfTheirOwn) {
  on_two([](Session& session) {
    auto wide = torch::zeros({5}, torch::kFloat64).requires_grad_(true);
    auto half = torch::zeros({7}, torch::kBFloat16).requires_grad_(true);
    auto p = parameter(0);
    torch::optim::SGD sgd({wide, half, p}, torch::optim::SGDOptions(1));
    DistributedOptimizer optimizer(session, sgd, {.seed_random = false});
    for (auto step : session.steps({.steps = 2})) {
      (void)step;
      optimizer.zero_grad();
      (wide.sum().to(torch::kFloat32) + half.sum().to(torch::kFloat32) + p.sum()).backward();
      optimizer.step();
    }
    EXPECT_EQ(wide[4].item<double>(), -2);
    EXPECT_EQ(half[6].item<float>(), -2);
    EXPECT_EQ(p[2].item<float>(), -2);
  });
}

TEST(DistributedOptimizer, RefusesWhatItCannotDo) {
  auto session = Session::join();
  auto p = parameter(0);
  torch::optim::LBFGS lbfgs({p}, torch::optim::LBFGSOptions(1));
  try {
    DistributedOptimizer optimizer(session, lbfgs);
    FAIL() << "LBFGS was accepted";
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("closure"), std::string::npos);
  }
  torch::optim::SGD sgd({p}, torch::optim::SGDOptions(1));
  EXPECT_THROW(DistributedOptimizer(session, sgd, {.accumulate = 0}), Failure);
  EXPECT_THROW(DistributedOptimizer(session, sgd, {.bucket_bytes = 0}), Failure);
}

}  // namespace
}  // namespace pliant
