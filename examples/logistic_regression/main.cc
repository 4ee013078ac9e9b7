// Softmax regression on Fashion-MNIST, written by hand on pliant.h alone: the reduction is a black box that any
// framework can call.
//
//   pliant run -n 2 -- logistic_regression --epochs 3
#include <pliant/data.h>
#include <pliant/pliant.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace {

constexpr std::size_t kPixels = 784;
constexpr std::size_t kClasses = 10;
constexpr std::size_t kWeights = (kPixels + 1) * kClasses;  // the last row is the bias

using Scores = std::array<float, kClasses>;

/// Class probabilities of one image.
Scores predict(const std::vector<float>& weights, const std::uint8_t* pixels) {
  Scores scores;
  std::copy_n(weights.end() - kClasses, kClasses, scores.begin());
  for (std::size_t p = 0; p < kPixels; ++p) {
    if (pixels[p] == 0) continue;
    float x = static_cast<float>(pixels[p]) / 255;
    for (std::size_t c = 0; c < kClasses; ++c) scores[c] += x * weights[p * kClasses + c];
  }
  float top = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& score : scores) sum += score = std::exp(score - top);
  for (float& score : scores) score /= sum;
  return scores;
}

/// Adds one sample's gradient and returns its loss.
double learn(const std::vector<float>& weights, const std::uint8_t* pixels, int label, float share,
             std::span<float> gradient) {
  auto scores = predict(weights, pixels);
  double loss = -std::log(std::max(scores[label], 1e-12F));
  scores[label] -= 1;
  for (std::size_t c = 0; c < kClasses; ++c) gradient[kPixels * kClasses + c] += share * scores[c];
  for (std::size_t p = 0; p < kPixels; ++p) {
    if (pixels[p] == 0) continue;
    float x = share * static_cast<float>(pixels[p]) / 255;
    for (std::size_t c = 0; c < kClasses; ++c) gradient[p * kClasses + c] += x * scores[c];
  }
  return loss;
}

void train(const std::string& folder, std::uint64_t epochs, std::uint64_t batch, float rate) {
  auto session = pliant::Session::join();
  auto images = pliant::load_mnist(folder, true);
  auto test = pliant::load_mnist(folder, false);

  std::vector<float> weights(kWeights, 0);
  session.share("weights", pliant::state_of(weights));
  pliant::ElasticSampler sampler(session, images.count, {.local_batch = batch});
  auto gradients = session.allocate("gradients", kWeights * sizeof(float));

  for (auto step : session.steps({.epochs = epochs})) {
    auto rows = sampler.next();
    auto gradient = gradients.input<float>();
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    double loss = 0;
    for (auto row : rows)
      loss += learn(weights, &images.pixels[row * kPixels], images.labels[row], 1.0F / static_cast<float>(rows.size()),
                    gradient);
    auto mean = session.reduce<float>("gradients", gradients, pliant::Op::weighted_mean).wait();
    for (std::size_t i = 0; i < kWeights; ++i) weights[i] -= rate * mean[i];
    step.log("loss", rows.empty() ? 0 : loss / static_cast<double>(rows.size()));

    if (step.ends_epoch()) {
      auto [begin, end] = session.part(test.count);
      double right = 0;
      for (auto i = begin; i < end; ++i) {
        auto scores = predict(weights, &test.pixels[i * kPixels]);
        right += std::max_element(scores.begin(), scores.end()) - scores.begin() == test.labels[i];
      }
      auto count = static_cast<double>(end - begin);
      auto accuracy = session.average("accuracy", count > 0 ? right / count : 0, count);
      if (session.leader())
        std::printf("epoch %llu  loss %.4f  test accuracy %.2f %%\n", static_cast<unsigned long long>(step.epoch() + 1),
                    session.averages().at("loss"), 100 * accuracy);
    }
  }
  auto digest = session.digest();
  if (session.leader()) std::printf("digest %016llx\n", static_cast<unsigned long long>(digest));
}

}  // namespace

int main(int argc, char** argv) {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::uint64_t epochs = 2;
  std::uint64_t batch = 50;
  float rate = 0.1F;
  CLI::App app{
      "Softmax regression on Fashion-MNIST without any framework.\n\nExample:\n"
      "  pliant run -n 2 -- logistic_regression --epochs 3"};
  app.add_option("--data", data, "folder with the IDX files")->capture_default_str();
  app.add_option("--epochs", epochs, "passes over the data")->check(CLI::Range(1, 10000))->capture_default_str();
  app.add_option("--batch", batch, "samples per worker and step")->check(CLI::Range(1, 60000))->capture_default_str();
  app.add_option("--lr", rate, "learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    train(data, epochs, batch, rate);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "logistic_regression: %s\n", error.what());
    return 1;
  }
  return 0;
}
