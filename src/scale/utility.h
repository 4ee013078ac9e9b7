// What it is worth to be done at a time.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace pliant::scale {

/// A value over the time at which the job is done, in seconds: straight lines between points, and beyond the last one
/// with the last slope.
class Utility {
 public:
  /// `value` at once, nothing after `end`, and in between in proportion; less than nothing later.
  static Utility linear(double value, double end);
  /// (value, until when), ascending: from one to the next in straight lines. What is worth v at first is worth v at 0.
  static Utility steps(std::vector<std::pair<double, double>> points);
  /// "linear:100@3600" or "steps:100@600+50@1200"; Failure(Code::invalid) for anything else.
  static Utility parse(std::string_view text);

  /// The job's time as it is expected when first measured: steps that end earlier fall to nothing there.
  void expect(double seconds);
  double at(double seconds) const;

 private:
  struct Knot {
    double time, value;
  };
  std::vector<Knot> knots_;  // at least two, ascending
  bool open_ = false;        // expect() may add another
};

}  // namespace pliant::scale
