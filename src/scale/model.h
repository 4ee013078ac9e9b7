// How long a step takes with any number of workers and any batch, from those that were seen (Pollux: Qiao et al., OSDI
// 2021).
#pragma once

#include <vector>

namespace pliant::scale {

/// Steps of one shape.
struct Observation {
  int workers = 1;
  double local_batch = 1;  ///< samples per worker
  double seconds = 0;      ///< of a step
};

/// A step's gradients take alpha_g + beta_g·m, and with two or more workers their reduction alpha + beta·(n - 2); the
/// two overlap, the more the larger gamma is.
struct StepModel {
  double alpha_g = 0, beta_g = 0;
  double alpha = 0, beta = 0;
  double gamma = 1;

  double seconds(int workers, double local_batch) const;
  /// Samples per second.
  double rate(int workers, double local_batch) const;
};

/// The model that fits best, by the ratio of times. What was not seen is taken to cost nothing: without two workers
/// there is no reduction, without three it costs the same for all. REQUIRES: something was observed.
StepModel fit(const std::vector<Observation>& seen);

/// How much a sample is worth at a batch, compared with one at `base`, if the noise scale is this.
double statistical_efficiency(double noise_scale, double base, double batch);

}  // namespace pliant::scale
