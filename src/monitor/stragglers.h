// Who is slower than the others, for longer than by chance (Or et al., MLSys 2020).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pliant::monitor {

struct StragglerOptions {
  double memory = 0.9;          ///< what is left of a step's word after the next one
  double least = 0.8;           ///< of the median speed: below it a worker is a straggler
  std::uint64_t skip = 2;       ///< steps of a worker that do not count: it has just come
  std::uint64_t patience = 10;  ///< steps that a worker must have been seen before it is called one
};

class Stragglers {
 public:
  explicit Stragglers(StragglerOptions options = {}) : options_(options) {}

  /// A step: how many samples a second each worker has computed, waiting left out. Those who are not in it are
  /// forgotten.
  void add(const std::map<std::uint64_t, double>& rates);
  /// The slowest first.
  std::vector<std::uint64_t> found() const;
  /// Its speed over the median, smoothed; 1 if it is not known.
  double speed(std::uint64_t worker) const;

  /// All it knows, to move it to another worker.
  std::string save() const;
  void load(std::string_view saved);

 private:
  struct Seen {
    double speed = 1;
    std::uint64_t steps = 0;
  };
  StragglerOptions options_;
  std::map<std::uint64_t, Seen> seen_;
};

}  // namespace pliant::monitor
