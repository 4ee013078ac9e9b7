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

void NoiseScale::Average::fade(double kept) {
  variance *= kept;
  signal *= kept;
  weight *= kept;
}

void NoiseScale::Average::add(const NoiseSample& sample, double share) {
  variance += share * sample.variance;
  signal += share * sample.signal;
  weight += share;
}

void NoiseScale::add(const NoiseSample& sample, int contributors, bool biased) {
  auto kept = std::pow(memory_, contributors);
  if (!biased) alone_ = {};
  shared_.fade(kept);
  alone_.fade(kept);
  (biased ? alone_ : shared_).add(sample, 1 - kept);
}

double NoiseScale::variance() const {
  constexpr double kLeast = 1e-6;
  return best().weight > 0 ? std::max(best().variance / best().weight, kLeast) : kLeast;
}

double NoiseScale::signal() const { return best().weight > 0 ? std::max(best().signal / best().weight, 0.0) : 0; }

std::optional<double> NoiseScale::value() const {
  if (!(signal() > 0)) return std::nullopt;
  auto scale = variance() / signal();
  return std::isfinite(scale) ? std::optional(scale) : std::nullopt;
}

NoiseScale::Saved NoiseScale::save() const {
  return {shared_.variance, shared_.signal, shared_.weight, alone_.variance, alone_.signal, alone_.weight};
}

void NoiseScale::load(const Saved& saved) {
  shared_ = {saved[0], saved[1], saved[2]};
  alone_ = {saved[3], saved[4], saved[5]};
}

}  // namespace pliant::monitor
