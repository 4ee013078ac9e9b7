#include "small_training.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "models.h"

namespace nn = torch::nn;

void add_small_options(CLI::App& app, SmallOptions& options) {
  app.add_option("--model", options.model, "mlp, cnn or resnet")
      ->check(CLI::IsMember({"mlp", "cnn", "resnet"}))
      ->capture_default_str();
  app.add_option("--data", options.data, "folder with the IDX files")->capture_default_str();
  app.add_option("--epochs", options.epochs, "passes over the data")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "samples per worker and step")
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  app.add_option("--global-batch", options.global_batch, "samples per step, divided among the workers; beats --batch")
      ->check(CLI::Range(1, 60000));
  app.add_option("--lr", options.lr, "learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--momentum", options.momentum, "of SGD")->check(CLI::Range(0.0, 1.0))->capture_default_str();
  app.add_option("--limit", options.limit, "train on so many samples only")->check(CLI::NonNegativeNumber);
}

double evaluate(pliant::Session& session, nn::AnyModule& model, const torch::Tensor& images,
                const torch::Tensor& labels) {
  torch::NoGradGuard no_grad;
  model.ptr()->eval();
  auto [begin, end] = session.part(static_cast<std::uint64_t>(images.size(0)));
  std::int64_t right = 0;
  for (auto at = static_cast<std::int64_t>(begin); at < static_cast<std::int64_t>(end); at += 500) {
    auto size = std::min<std::int64_t>(500, static_cast<std::int64_t>(end) - at);
    auto guess = model.forward(images.narrow(0, at, size)).argmax(1);
    right += guess.eq(labels.narrow(0, at, size)).sum().item<std::int64_t>();
  }
  model.ptr()->train();
  auto count = static_cast<double>(end - begin);
  return session.average("accuracy", count > 0 ? static_cast<double>(right) / count : 0, count);
}

void train_small(const SmallOptions& options, const pliant::OptimizerOptions& optimizer_options,
                 const std::function<void(pliant::Session&, pliant::DistributedOptimizer&)>& set_up) {
  auto session = pliant::Session::join();
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

  auto with_batch = optimizer_options;
  with_batch.local_batch = options.batch;
  pliant::DistributedOptimizer optimizer(session, sgd, with_batch);
  pliant::ElasticSampler sampler(session, static_cast<std::uint64_t>(images.size(0)),
                                 {.global_batch = options.global_batch});
  session.share("model", pliant::state_of(*model.ptr())).share("optimizer", pliant::state_of(sgd));
  pliant::TensorDataset dataset(images, labels);
  pliant::Loader loader(session, sampler, dataset);
  set_up(session, optimizer);

  auto tell = [&](const std::string& when) {
    auto accuracy = evaluate(session, model, test_images, test_labels);
    if (!session.leader()) return;
    const auto& last = session.report();
    std::printf("%s  step %llu  workers %d  batch %llu  rate %.4g  loss %.4f  noise scale %.0f  accuracy %.2f %%\n",
                when.c_str(), static_cast<unsigned long long>(last.step + 1), session.size(),
                static_cast<unsigned long long>(last.global_batch), last.rate, session.averages().at("loss"),
                last.noise_scale.value_or(0), 100 * accuracy);
  };
  bool told = true;
  for (auto step : session.steps({.epochs = options.epochs})) {
    auto batch = loader.next();
    optimizer.zero_grad();
    torch::Tensor loss = torch::zeros({});
    if (batch.size() > 0) {
      loss = nn::functional::cross_entropy(model.forward(batch.inputs), batch.targets);
      loss.backward();
    }
    optimizer.step();
    step.log("loss", loss);
    told = step.ends_epoch();
    if (told) tell("epoch " + std::to_string(step.epoch() + 1));
  }
  if (!told && !session.departed()) tell("end");
}

int run_example(int argc, char** argv, CLI::App& app, const std::function<void()>& body) {
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, error.what());
    return 1;
  }
  return 0;
}
