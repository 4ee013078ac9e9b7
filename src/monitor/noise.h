// The gradient's noise. A worker's gradient is the mean over its own samples; how much those of several workers differ
// says how much of their mean is signal. The *noise scale* is the batch at which both are equal: up to about there a
// larger batch saves steps, beyond it samples are wasted (McCandlish et al., arXiv 1812.06162).
//
// Weighted by samples everything is simple, however uneven the workers' batches are: with G the true gradient and Σ
// the covariance of one sample's gradient, n contributors and B samples in all,
//
//   E[spread]  = |G|² + n/B · tr Σ
//   E[squares] = |G|² + 1/B · tr Σ
#pragma once

#include <array>
#include <optional>

namespace pliant::monitor {

/// What a step's reduction measured.
struct Moments {
  double spread = 0;   ///< the mean of the contributions' squared norms, weighted by samples
  double squares = 0;  ///< the squared norm of their mean, weighted by samples
  double samples = 0;
  int contributors = 0;
};

/// The same from two gradients of one contributor, one after the other. Biased: the model has moved between them.
Moments moments_of_two(double squares_before, double samples_before, double squares_now, double samples_now,
                       double product);

/// Unbiased estimates; each may be negative, because it is one draw.
struct NoiseSample {
  double variance = 0;  ///< tr Σ: of one sample's gradient
  double signal = 0;    ///< |G|²
};
/// Nothing from fewer than two contributors, and nothing that is not finite.
std::optional<NoiseSample> noise_of(const Moments& moments);

/// Averages that forget: the later a sample, the more it counts, and the first ones count in full (debiased).
/// Variance and signal are smoothed apart, because the mean of their quotients is not the quotient of their means.
class NoiseScale {
 public:
  /// `memory`: what is left of a sample's weight after a step of one contributor.
  explicit NoiseScale(double memory = 0.999) : memory_(memory) {}

  /// Several contributors tell as much as several steps. `biased`: see moments_of_two; such samples are averaged apart,
  /// count when what several contributors have said is older than they are, and are forgotten as soon as there is
  /// something better.
  void add(const NoiseSample& sample, int contributors, bool biased = false);

  /// Never below 1e-6 and 0.
  double variance() const;
  double signal() const;
  /// In samples. Nothing before the first sample, or as long as no signal is seen.
  std::optional<double> value() const;
  bool biased() const { return alone_.weight > shared_.weight; }

  /// All of it, to move it to another worker.
  using Saved = std::array<double, 6>;
  Saved save() const;
  void load(const Saved& saved);

 private:
  struct Average {
    double variance = 0, signal = 0, weight = 0;  // sums, and how much they weigh
    void fade(double kept);
    void add(const NoiseSample& sample, double share);
  };
  const Average& best() const { return biased() ? alone_ : shared_; }

  double memory_;
  Average shared_, alone_;  // from several contributors, and from one
};

}  // namespace pliant::monitor
