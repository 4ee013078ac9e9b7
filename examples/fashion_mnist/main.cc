// Trains a small network on Fashion-MNIST, on as many workers as there are.
//
//   fashion_mnist                                  a job of one
//   pliant run -n 2 -- fashion_mnist --epochs 4    two workers
#include <pliant/torch.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "../common/models.h"
#include "../common/small_training.h"

namespace {

struct Options : SmallOptions {
  std::uint64_t seed = 42;
  bool augment = false;
};

void train(const Options& options) {
  auto session = pliant::Session::join({.seed = options.seed});
  torch::manual_seed(static_cast<std::int64_t>(session.seed()));
  if (const char* threads = std::getenv("PLIANT_THREADS")) torch::set_num_threads(std::atoi(threads));

  auto [images, labels] = pliant::read_mnist(options.data, true);
  auto [test_images, test_labels] = pliant::read_mnist(options.data, false);
  if (options.limit > 0 && options.limit < images.size(0)) {
    images = images.narrow(0, 0, options.limit);
    labels = labels.narrow(0, 0, options.limit);
  }
  auto model = make_model(options.model);
  torch::optim::SGD sgd(model.ptr()->parameters(), torch::optim::SGDOptions(options.lr).momentum(options.momentum));

  pliant::DistributedOptimizer optimizer(session, sgd, {.local_batch = options.batch});
  pliant::ElasticSampler sampler(session, static_cast<std::uint64_t>(images.size(0)),
                                 {.global_batch = options.global_batch});
  session.share("model", pliant::state_of(*model.ptr())).share("optimizer", pliant::state_of(sgd));
  pliant::TensorDataset dataset(images, labels, options.augment ? pliant::shift_and_flip(2, true) : nullptr);
  pliant::Loader loader(session, sampler, dataset);

  auto began = std::chrono::steady_clock::now();
  for (auto step : session.steps({.epochs = options.epochs})) {
    // From the full rate down to nothing along half a cosine, whoever is there to work on it.
    auto rate = options.lr * 0.5 * (1 + std::cos(M_PI * step.progress()));
    for (auto& group : sgd.param_groups()) static_cast<torch::optim::SGDOptions&>(group.options()).lr(rate);

    auto batch = loader.next();
    optimizer.zero_grad();
    torch::Tensor loss = torch::zeros({});
    if (batch.size() > 0) {
      loss = torch::nn::functional::cross_entropy(model.forward(batch.inputs), batch.targets);
      loss.backward();
    }
    optimizer.step();
    step.log("loss", loss);

    if (step.ends_epoch()) {
      auto accuracy = evaluate(session, model, test_images, test_labels);
      auto taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      if (session.leader())
        std::printf("epoch %llu  loss %.4f  test accuracy %.2f %%  %.1f s\n",
                    static_cast<unsigned long long>(step.epoch() + 1), session.averages().at("loss"), 100 * accuracy,
                    taken);
    }
  }
  if (session.departed()) return;  // the others go on
  auto digest = session.digest();
  if (session.leader())
    std::printf("done: %d worker%s, digest %016llx\n", session.size(), session.size() == 1 ? "" : "s",
                static_cast<unsigned long long>(digest));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.model = "cnn";
  options.epochs = 3;
  CLI::App app{
      "Trains a small network on Fashion-MNIST.\n\nExamples:\n"
      "  fashion_mnist --epochs 1\n"
      "  pliant run -n 2 -- fashion_mnist --model resnet --batch 32"};
  add_small_options(app, options);
  app.add_option("--seed", options.seed, "of a job of one; under pliant run its --seed decides")->capture_default_str();
  app.add_flag("--augment", options.augment, "shift and mirror the images");
  return run_example(argc, argv, app, [&] { train(options); });
}
