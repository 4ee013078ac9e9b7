// How fast a job is with how many workers: what was measured, over the whole job.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>

namespace pliant::scale {

/// The mean of what was seen at one number of workers.
struct Point {
  int workers = 0;
  double rate = 0;  ///< samples per second
  std::uint64_t count = 0;
  double samples = 0;  ///< in a step
  double squares = 0;  ///< of the rates' distances from their mean: the sum
  /// How far the mean may be off: its standard error.
  double error() const {
    auto n = static_cast<double>(count);
    return count > 1 ? std::sqrt(squares / (n * (n - 1))) : 0;
  }
};

class Throughputs {
 public:
  void add(int workers, double rate, double samples = 0) {
    auto& point = points_[workers];
    point.workers = workers;
    auto share = 1 / static_cast<double>(++point.count);
    auto off = rate - point.rate;
    point.rate += share * off;
    point.squares += off * (rate - point.rate);
    point.samples += share * (samples - point.samples);
  }
  /// By number of workers, ascending.
  const std::map<int, Point>& points() const { return points_; }
  /// REQUIRES: something was added at that number.
  const Point& at(int workers) const { return points_.at(workers); }
  bool has(int workers) const { return points_.contains(workers); }
  void forget() { points_.clear(); }
  void put(const Point& point) { points_[point.workers] = point; }

 private:
  std::map<int, Point> points_;
};

}  // namespace pliant::scale
