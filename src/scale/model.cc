#include "scale/model.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace pliant::scale {
namespace {

constexpr double kLeast = 1e-8, kMostGamma = 10;

using Vertex = std::array<double, 5>;  // logarithms of alpha_g, beta_g, alpha, beta; gamma

using Free = std::array<bool, 5>;  // those that are looked for

StepModel model_at(const Vertex& x, const Free& free) {
  auto positive = [&](int i) { return free[i] ? std::max(std::exp(x[i]), kLeast) : 0; };
  return {positive(0), positive(1), positive(2), positive(3), free[4] ? std::clamp(x[4], 1.0, kMostGamma) : 1};
}

/// Nelder and Mead's method: no derivatives, five dimensions or fewer, a smooth function.
template <class F>
class Minimiser {
 public:
  Minimiser(const F& f, const Vertex& start, const Free& free) : f_(f) {
    add(start);
    for (std::size_t d = 0; d < start.size(); ++d) {
      if (!free[d]) continue;
      auto vertex = start;
      vertex[d] += d == 4 ? 1.5 : 1.0;
      add(vertex);
    }
  }

  Vertex run() {
    for (int turn = 0; turn < 2000; ++turn) {
      std::ranges::sort(corners_, {}, &Corner::value);
      if (corners_.back().value - corners_.front().value < 1e-10) break;
      turn_over();
    }
    return std::ranges::min_element(corners_, {}, &Corner::value)->vertex;
  }

 private:
  struct Corner {
    Vertex vertex;
    double value;
  };

  void add(const Vertex& vertex) { corners_.push_back({vertex, f_(vertex)}); }

  static Vertex along(const Vertex& from, const Vertex& to, double how_far) {
    Vertex at;
    for (std::size_t d = 0; d < at.size(); ++d) at[d] = from[d] + how_far * (to[d] - from[d]);
    return at;
  }

  /// The middle of all but the worst.
  Vertex middle() const {
    Vertex sum{};
    for (std::size_t i = 0; i + 1 < corners_.size(); ++i)
      for (std::size_t d = 0; d < sum.size(); ++d)
        sum[d] += corners_[i].vertex[d] / static_cast<double>(corners_.size() - 1);
    return sum;
  }

  /// The worst corner goes to the other side, or nearer, or all go to the best. Corners are in order.
  void turn_over() {
    auto& worst = corners_.back();
    auto from = worst.vertex, to = middle();
    auto at = [&](double how_far) {
      auto vertex = along(from, to, how_far);
      return Corner{vertex, f_(vertex)};
    };
    auto reflected = at(2);
    if (reflected.value < corners_.front().value) {
      auto further = at(3);
      worst = further.value < reflected.value ? further : reflected;
      return;
    }
    if (reflected.value < corners_[corners_.size() - 2].value) {
      worst = reflected;
      return;
    }
    auto nearer = at(reflected.value < worst.value ? 1.5 : 0.5);
    if (nearer.value < std::min(reflected.value, worst.value)) {
      worst = nearer;
      return;
    }
    for (std::size_t i = 1; i < corners_.size(); ++i) {
      corners_[i].vertex = along(corners_[0].vertex, corners_[i].vertex, 0.5);
      corners_[i].value = f_(corners_[i].vertex);
    }
  }

  const F& f_;
  std::vector<Corner> corners_;
};

}  // namespace

double StepModel::seconds(int workers, double local_batch) const {
  auto gradients = alpha_g + beta_g * local_batch;
  if (workers < 2) return gradients;
  auto reduction = alpha + beta * static_cast<double>(workers - 2);
  if (reduction <= 0) return gradients;
  auto [smaller, larger] = std::minmax(gradients, reduction);  // so that large powers stay finite
  return larger * std::pow(1 + std::pow(smaller / larger, gamma), 1 / gamma);
}

double StepModel::rate(int workers, double local_batch) const {
  return static_cast<double>(workers) * local_batch / seconds(workers, local_batch);
}

StepModel fit(const std::vector<Observation>& seen) {
  auto most = std::ranges::max_element(seen, {}, &Observation::workers)->workers;
  auto [small, large] = std::ranges::minmax_element(seen, {}, &Observation::local_batch);
  bool batches_differ = large->local_batch > 1.01 * small->local_batch;
  // With one batch only, its time is in proportion to it: the safer guess for batches that were not seen.
  Free free{batches_differ, true, most >= 2, most >= 3, most >= 2};
  double usual = 0;
  for (const auto& each : seen) usual += std::log(each.seconds) / static_cast<double>(seen.size());
  const auto typical = std::exp(usual);
  auto error = [&](const Vertex& x) {
    auto model = model_at(x, free);
    double sum = 0;
    for (const auto& each : seen) {
      auto off = std::log(model.seconds(each.workers, each.local_batch)) - std::log(each.seconds);
      sum += off * off / static_cast<double>(seen.size());
    }
    // Small wishes, where data say nothing: reductions that overlap little, and terms near nothing.
    double wishes = 1e-6 * (model.gamma - 1) * (model.gamma - 1) / (kMostGamma * kMostGamma);
    for (double term : {model.alpha, model.beta}) wishes += 1e-8 * (term / typical) * (term / typical);
    return sum + wishes + (x[4] < 1 ? 1 - x[4] : 0) + (x[4] > kMostGamma ? x[4] - kMostGamma : 0);
  };
  Vertex best{};
  double least = INFINITY;
  for (double reduction : {0.1, 0.5, 1.0}) {
    for (double gamma : {1.2, 3.0}) {
      Vertex start{usual - 1, usual - std::log(large->local_batch), usual + std::log(reduction),
                   usual + std::log(reduction / 10), gamma};
      auto found = Minimiser(error, Minimiser(error, start, free).run(), free).run();
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
