#include "scale/model.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace pliant::scale {
namespace {

constexpr double kLeast = 1e-8, kMostGamma = 10;

using Vertex = std::array<double, 5>;  // logarithms of alpha_g, beta_g, alpha, beta; gamma

struct Simplex {
  std::array<Vertex, 6> vertices;
  std::array<double, 6> values;
};

StepModel model_at(const Vertex& x, const std::array<bool, 5>& free) {
  auto positive = [&](int i) { return free[i] ? std::max(std::exp(x[i]), kLeast) : 0; };
  return {positive(0), positive(1), positive(2), positive(3), free[4] ? std::clamp(x[4], 1.0, kMostGamma) : 1};
}

/// Nelder and Mead's method: no derivatives, five dimensions, a smooth function.
template <class F>
Vertex minimise(const F& f, const Vertex& start) {
  Simplex s;
  for (std::size_t i = 0; i < s.vertices.size(); ++i) {
    s.vertices[i] = start;
    if (i > 0) s.vertices[i][i - 1] += i == 5 ? 1.5 : 1.0;
    s.values[i] = f(s.vertices[i]);
  }
  auto along = [&](const Vertex& from, const Vertex& to, double how_far) {
    Vertex at;
    for (std::size_t d = 0; d < at.size(); ++d) at[d] = from[d] + how_far * (to[d] - from[d]);
    return at;
  };
  for (int turn = 0; turn < 2000; ++turn) {
    std::array<std::size_t, 6> order{0, 1, 2, 3, 4, 5};
    std::ranges::sort(order, [&](auto a, auto b) { return s.values[a] < s.values[b]; });
    auto best = order[0], second = order[4], worst = order[5];
    if (s.values[worst] - s.values[best] < 1e-14) break;
    Vertex middle{};
    for (auto i : order)
      if (i != worst)
        for (std::size_t d = 0; d < middle.size(); ++d) middle[d] += s.vertices[i][d] / 5;
    auto replace = [&](const Vertex& vertex, double value) {
      s.vertices[worst] = vertex;
      s.values[worst] = value;
    };
    auto reflected = along(s.vertices[worst], middle, 2);
    auto value = f(reflected);
    if (value < s.values[best]) {
      auto further = along(s.vertices[worst], middle, 3);
      auto there = f(further);
      there < value ? replace(further, there) : replace(reflected, value);
    } else if (value < s.values[second]) {
      replace(reflected, value);
    } else {
      auto nearer = along(s.vertices[worst], middle, value < s.values[worst] ? 1.5 : 0.5);
      auto there = f(nearer);
      if (there < std::min(value, s.values[worst])) {
        replace(nearer, there);
      } else {
        for (auto i : order) {
          if (i == best) continue;
          s.vertices[i] = along(s.vertices[best], s.vertices[i], 0.5);
          s.values[i] = f(s.vertices[i]);
        }
      }
    }
  }
  auto best = std::ranges::min_element(s.values) - s.values.begin();
  return s.vertices[static_cast<std::size_t>(best)];
}

}  // namespace

double StepModel::seconds(int workers, double local_batch) const {
  auto gradients = alpha_g + beta_g * local_batch;
  if (workers < 2) return gradients;
  auto reduction = alpha + beta * static_cast<double>(workers - 2);
  if (reduction <= 0) return gradients;
  auto larger = std::max(gradients, reduction);  // so that large powers stay finite
  return larger * std::pow(std::pow(gradients / larger, gamma) + std::pow(reduction / larger, gamma), 1 / gamma);
}

double StepModel::rate(int workers, double local_batch) const {
  return static_cast<double>(workers) * local_batch / seconds(workers, local_batch);
}

StepModel fit(const std::vector<Observation>& seen) {
  auto most = std::ranges::max_element(seen, {}, &Observation::workers)->workers;
  auto [small, large] = std::ranges::minmax_element(seen, {}, &Observation::local_batch);
  bool batches_differ = large->local_batch > 1.01 * small->local_batch;
  // With one batch only, its time is in proportion to it: the safer guess for batches that were not seen.
  std::array<bool, 5> free{batches_differ, true, most >= 2, most >= 3, most >= 2};
  double usual = 0;
  for (const auto& each : seen) usual += std::log(each.seconds) / static_cast<double>(seen.size());
  auto error = [&](const Vertex& x) {
    auto model = model_at(x, free);
    double sum = 0;
    for (const auto& each : seen) {
      auto off = std::log(model.seconds(each.workers, each.local_batch)) - std::log(each.seconds);
      sum += off * off / static_cast<double>(seen.size());
    }
    // Small wishes, where data say nothing: reductions that overlap little, and terms near nothing.
    double wishes = 1e-3 * (model.gamma - 1) * (model.gamma - 1) / (kMostGamma * kMostGamma);
    for (double term : {model.alpha, model.beta}) wishes += 1e-5 * std::pow(term / std::exp(usual), 2);
    return std::sqrt(sum) + wishes + (x[4] < 1 ? 1 - x[4] : 0) + (x[4] > kMostGamma ? x[4] - kMostGamma : 0);
  };
  Vertex best{};
  double least = INFINITY;
  for (double reduction : {0.1, 0.5, 1.0}) {
    for (double gamma : {1.2, 3.0}) {
      Vertex start{usual - 1, usual - std::log(large->local_batch), usual + std::log(reduction),
                   usual + std::log(reduction / 10), gamma};
      auto found = minimise(error, minimise(error, start));
      if (auto value = error(found); value < least) {
        least = value;
        best = found;
      }
    }
  }
  return model_at(best, free);
}

double statistical_efficiency(double noise_scale, double base, double batch) {
  return (noise_scale + base) / (noise_scale + std::max(batch, base));
}

}  // namespace pliant::scale
