// What the examples share: a small network on Fashion-MNIST that trains in seconds, and the loop.
#pragma once

#include <pliant/torch.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>

struct SmallOptions {
  std::string model = "mlp";
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::uint64_t epochs = 5;
  std::uint64_t batch = 64;        // per worker
  std::uint64_t global_batch = 0;  // in all, if set
  double lr = 0.05;
  double momentum = 0.9;
  std::int64_t limit = 0;
};
void add_small_options(CLI::App& app, SmallOptions& options);

/// Trains, and says after each epoch and at the end how far it is. `set_up` is called before the first step.
void train_small(const SmallOptions& options, const pliant::OptimizerOptions& optimizer,
                 const std::function<void(pliant::Session&, pliant::DistributedOptimizer&)>& set_up);

/// Accuracy over the whole test set: every worker takes a part of it.
double evaluate(pliant::Session& session, torch::nn::AnyModule& model, const torch::Tensor& images,
                const torch::Tensor& labels);

/// main(): parses, runs, and turns exceptions into one line.
int run_example(int argc, char** argv, CLI::App& app, const std::function<void()>& body);
