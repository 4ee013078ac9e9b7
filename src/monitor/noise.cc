#include "monitor/noise.h"

#include <algorithm>
#include <cmath>

namespace pliant::monitor {

Moments moments_of_two(double squares_before, double samples_before, double squares_now, double samples_now,
                       double product) {
  auto samples = samples_before + samples_now;
  auto before = samples_before / samples;
  auto now = samples_now / samples;
  return {before * squares_before + now * squares_now,
          before * before * squares_before + now * now * squares_now + 2 * before * now * product, samples, 2};
}

std::optional<NoiseSample> noise_of(const Moments& moments) {
  if (moments.contributors < 2 || !(moments.samples > 0)) return std::nullopt;
  auto others = static_cast<double>(moments.contributors - 1);
  NoiseSample sample;
  sample.variance = moments.samples * (moments.spread - moments.squares) / others;
  sample.signal = moments.squares - sample.variance / moments.samples;
  if (!std::isfinite(sample.variance) || !std::isfinite(sample.signal)) return std::nullopt;
  return sample;
}

void NoiseScale::add(const NoiseSample& sample, int contributors, bool biased) {
  if (biased_ && !biased) variance_ = signal_ = weight_ = 0;
  if (weight_ > 0 && biased && !biased_) return;  // what is known is better
  biased_ = biased;
  auto kept = std::pow(memory_, contributors);
  variance_ = kept * variance_ + (1 - kept) * sample.variance;
  signal_ = kept * signal_ + (1 - kept) * sample.signal;
  weight_ = kept * weight_ + (1 - kept);
}

double NoiseScale::variance() const {
  constexpr double kLeast = 1e-6;
  return weight_ > 0 ? std::max(variance_ / weight_, kLeast) : kLeast;
}

double NoiseScale::signal() const { return weight_ > 0 ? std::max(signal_ / weight_, 0.0) : 0; }

std::optional<double> NoiseScale::value() const {
  if (!(weight_ > 0) || !(signal() > 0)) return std::nullopt;
  auto scale = variance() / signal();
  return std::isfinite(scale) ? std::optional(scale) : std::nullopt;
}

void NoiseScale::load(const Saved& saved) {
  variance_ = saved[0];
  signal_ = saved[1];
  weight_ = saved[2];
  biased_ = saved[3] != 0;
}

}  // namespace pliant::monitor
