// Step times of Pliant: the twin of ddp_gloo.py, with the same models, batches and measure.
//
// A step is zero_grad, forward, backward, the optimizer's update and the session's step boundary; its time is the
// maximum over workers. With --no-reduce the same replicas run side by side without exchanging anything.
#include <pliant/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "models.h"

namespace {

constexpr int kPool = 16;  // different batches, in turn

struct Options {
  std::string model = "cnn";
  std::int64_t batch = 64;
  int steps = 100;
  int warmup = 10;
  int threads = 1;
  bool no_reduce = false;
  std::string json_file;
  std::size_t bucket_bytes = pliant::OptimizerOptions{}.bucket_bytes;
  pliant::MonitorOptions monitor;
  std::uint64_t split = 0;
};

/// 784 -> 4096 -> 4096 -> 1216 -> 10, with ReLU between: 25 million parameters.
struct MlpImpl : torch::nn::Module {
  std::vector<torch::nn::Linear> layers;
  MlpImpl() {
    int in = 784;
    for (int out : {4096, 4096, 1216, 10}) {
      layers.push_back(register_module("layer" + std::to_string(layers.size()), torch::nn::Linear(in, out)));
      in = out;
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (std::size_t i = 0; i + 1 < layers.size(); ++i) x = torch::relu(layers[i](x));
    return layers.back()(x);
  }
};
TORCH_MODULE(Mlp);

torch::nn::AnyModule model_of(const std::string& name) {
  return name == "mlp" ? torch::nn::AnyModule(Mlp()) : make_model(name);
}

using Clock = std::chrono::steady_clock;

std::vector<double> train(pliant::Session& session, const Options& options) {
  torch::manual_seed(7);
  auto model = model_of(options.model);
  torch::optim::SGD sgd(model.ptr()->parameters(), torch::optim::SGDOptions(0.001).momentum(0.9));
  std::vector<std::pair<torch::Tensor, torch::Tensor>> pool;
  torch::manual_seed(1000 + session.rank());
  for (int i = 0; i < kPool; ++i) {
    auto inputs =
        options.model == "mlp" ? torch::randn({options.batch, 784}) : torch::randn({options.batch, 1, 28, 28});
    pool.emplace_back(inputs, torch::randint(10, {options.batch}, torch::kInt64));
  }
  std::vector<double> times;
  auto last = Clock::now();
  auto turn = [&](std::size_t step) {  // the time of the turn that ends here
    auto now = Clock::now();
    if (step > static_cast<std::size_t>(options.warmup))
      times.push_back(std::chrono::duration<double, std::milli>(now - last).count());
    last = now;
  };
  auto forward = [&](std::size_t step) {
    const auto& [inputs, targets] = pool[step % kPool];
    torch::nn::functional::cross_entropy(model.forward(inputs), targets).backward();
  };
  auto total = static_cast<std::size_t>(options.warmup + options.steps);
  session.average("start", 0);  // nobody starts before all are here
  if (options.no_reduce) {
    for (std::size_t step = 0; step < total; ++step) {
      turn(step);
      for (auto& p : model.ptr()->parameters()) p.mutable_grad().reset();
      forward(step);
      sgd.step();
    }
    turn(total);
    return times;
  }
  pliant::DistributedOptimizer optimizer(
      session, sgd, {.local_batch = static_cast<std::uint64_t>(options.batch), .bucket_bytes = options.bucket_bytes});
  session.share("model", pliant::state_of(*model.ptr())).share("optimizer", pliant::state_of(sgd));
  session.monitor(options.monitor);
  for (auto step : session.steps({.steps = total})) {
    turn(step.index());
    optimizer.zero_grad();
    forward(step.index());
    optimizer.step();
  }
  turn(total);
  session.digest();  // fails if replicas differ
  return times;
}

double p50(std::vector<double> times) {
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// Of every `split`-th step, in which monitors look, and of the others: neighbours in time, and so comparable.
std::pair<double, double> split_p50(const std::vector<double>& times, const Options& options) {
  std::vector<double> due, others;
  for (std::size_t i = 0; i < times.size(); ++i)
    ((static_cast<std::size_t>(options.warmup) + i) % options.split == 0 ? due : others).push_back(times[i]);
  return {p50(due), p50(others)};
}

void run(const Options& options) {
  auto session = pliant::Session::join();
  torch::set_num_threads(options.threads);
  auto times = train(session, options);
  session.all_reduce<double>("times", times, pliant::Op::max);
  if (!session.leader()) return;
  auto mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  auto [due, others] = options.split ? split_p50(times, options) : std::pair(0.0, 0.0);
  std::sort(times.begin(), times.end());
  nlohmann::ordered_json line{{"system", "pliant"},
                              {"model", options.model},
                              {"batch", options.batch},
                              {"ranks", session.size()},
                              {"threads", options.threads},
                              {"reduce", !options.no_reduce},
                              {"p50_ms", times[times.size() / 2]},
                              {"min_ms", times.front()},
                              {"mean_ms", mean},
                              {"steps", options.steps}};
  if (options.split) line.update({{"due_ms", due}, {"others_ms", others}});
  if (options.json_file.empty())
    std::cout << line.dump() << std::endl;
  else
    std::ofstream(options.json_file) << line.dump() << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Times training steps.\n\nExample:\n  pliant run -n 2 -- pliant_train --model mlp --batch 32"};
  app.add_option("--model", options.model, "cnn, resnet or mlp")->check(CLI::IsMember({"cnn", "resnet", "mlp"}));
  app.add_option("--batch", options.batch, "samples per worker")->check(CLI::Range(1, 65536));
  app.add_option("--steps", options.steps, "timed steps")->check(CLI::Range(1, 1000000));
  app.add_option("--warmup", options.warmup, "steps before that")->check(CLI::Range(0, 1000000));
  app.add_option("--threads", options.threads, "per worker")->check(CLI::Range(1, 1024));
  app.add_flag("--no-reduce", options.no_reduce, "replicas side by side, nothing exchanged");
  app.add_option("--bucket-bytes", options.bucket_bytes, "see OptimizerOptions");
  app.add_option("--noise", options.monitor.noise_scale, "measure the noise scale every so many steps; 0: never")
      ->capture_default_str();
  app.add_option("--variance", options.monitor.variance, "the same of variances")->capture_default_str();
  app.add_option("--split", options.split, "also the times of every so manieth step, and of the others");
  app.add_option("--json-file", options.json_file, "where the result goes; standard output otherwise");
  bool json = false;
  app.add_flag("--json", json, "accepted for symmetry: the result is always JSON");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pliant_train: %s\n", error.what());
    return 1;
  }
  return 0;
}
