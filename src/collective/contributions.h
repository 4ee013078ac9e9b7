// What one reduction adds up: memory, weights and shares of those who contribute.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collective/kernels.h"

namespace pliant::collective {

/// Used again and again, so that small reductions allocate nothing.
class Contributions {
 public:
  void clear() {
    inputs_.clear();
    weights_.clear();
    spread_shares_.clear();
  }
  /// `spread_share`: of what the spread is measured by; 0: not measured here.
  void add(const std::byte* input, double weight, double spread_share) {
    inputs_.push_back(input);
    weights_.push_back(weight);
    spread_shares_.push_back(spread_share);
  }
  std::span<const double> weights() const { return weights_; }
  /// Room for a share of each, for a recipe to fill.
  std::span<double> shares() {
    shares_.resize(weights_.size());
    return shares_;
  }
  /// Reduces `elements` of each, from `shift` bytes on, into `out`. REQUIRES: shares() are filled.
  Measured reduce_at(const Recipe& recipe, std::size_t shift, std::byte* out, std::size_t elements) {
    parts_.resize(inputs_.size());
    for (std::size_t k = 0; k < inputs_.size(); ++k) parts_[k] = {inputs_[k] + shift, shares_[k], spread_shares_[k]};
    return reduce(recipe, out, parts_, elements);
  }

 private:
  std::vector<const std::byte*> inputs_;
  std::vector<double> weights_, shares_, spread_shares_;
  std::vector<Contribution> parts_;
};

}  // namespace pliant::collective
