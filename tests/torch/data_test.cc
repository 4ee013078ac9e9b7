#include <gtest/gtest.h>
#include <pliant/torch.h>

#include <atomic>
#include <set>

#include "session/workers.h"

namespace pliant {
namespace {

TEST(Loader, GivesEverySampleOnceAndItsOwnTarget) {
  std::mutex mutex;
  std::multiset<int> seen;
  session::run_runtimes(3, [&](std::unique_ptr<session::Runtime> runtime) {
    Session session(std::move(runtime));
    auto inputs = torch::arange(50, torch::kFloat32).reshape({50, 1});
    TensorDataset dataset(inputs, inputs.squeeze(1) * 2);
    ElasticSampler sampler(session, dataset.size(), {.local_batch = 4});
    Loader loader(session, sampler, dataset);
    for (auto step : session.steps({.epochs = 2})) {
      (void)step;
      auto batch = loader.next();
      ASSERT_TRUE(torch::equal(batch.inputs.squeeze(1) * 2, batch.targets));
      std::lock_guard lock(mutex);
      for (std::int64_t i = 0; i < batch.size(); ++i) seen.insert(batch.inputs[i][0].item<int>());
    }
  });
  EXPECT_EQ(seen.size(), 100U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(seen.count(i), 2U);
}

/// Counts how often it is asked, and shows the stream it was given.
class Noisy final : public Dataset {
 public:
  std::uint64_t size() const override { return 12; }
  std::pair<torch::Tensor, torch::Tensor> get(std::uint64_t sample, RandomStream& random) override {
    ++calls;
    return {torch::tensor({random.uniform()}), torch::tensor(static_cast<std::int64_t>(sample))};
  }
  std::atomic<int> calls{0};
};

TEST(Loader, AugmentationDependsOnTheSampleNotOnTheWorker) {
  auto draw = [](int workers) {
    std::mutex mutex;
    std::map<std::pair<std::uint64_t, std::int64_t>, double> drawn;
    session::run_runtimes(workers, [&](std::unique_ptr<session::Runtime> runtime) {
      Session session(std::move(runtime));
      Noisy dataset;
      ElasticSampler sampler(session, dataset.size(), {.global_batch = 4});
      Loader loader(session, sampler, dataset);
      for (auto step : session.steps({.epochs = 2})) {
        auto batch = loader.next();
        std::lock_guard lock(mutex);
        for (std::int64_t i = 0; i < batch.size(); ++i)
          drawn[{step.index(), batch.targets[i].item<std::int64_t>()}] = batch.inputs[i][0].item<double>();
      }
      if (workers == 1) {
        EXPECT_EQ(dataset.calls, 24);  // nothing is made twice or in vain
      }
    });
    return drawn;
  };
  auto alone = draw(1);
  EXPECT_EQ(alone.size(), 24U);
  EXPECT_EQ(alone, draw(3));
}

TEST(Augment, ShiftMovesPixelsAndKeepsTheShape) {
  auto inputs = torch::zeros({2, 1, 8, 8});
  inputs[0][0][4][4] = 1;
  inputs[1][0][4][4] = 1;
  std::set<std::pair<std::int64_t, std::int64_t>> places;
  auto augment = shift_and_flip(2, true);
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    auto out = augment(inputs, {0, 1}, [&](std::uint64_t sample) { return RandomStream(seed, 0, 0, sample); });
    ASSERT_EQ(out.sizes(), inputs.sizes());
    ASSERT_EQ(out.sum().item<float>(), 2);
    auto at = out[0][0].nonzero()[0];
    places.insert({at[0].item<std::int64_t>(), at[1].item<std::int64_t>()});
  }
  EXPECT_EQ(places.size(), 30U);  // five rows; five columns around 4 and around its mirror image 3
}

TEST(Data, ABrokenFolderIsNamed) {
  try {
    read_mnist("/nonexistent/folder", true);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("/nonexistent/folder"), std::string::npos) << failure.what();
  }
}

}  // namespace
}  // namespace pliant
