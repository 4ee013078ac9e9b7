// What it is worth to be done at a time.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pliant::scale {

/// A value over the time at which the job is done, in seconds: straight lines between points, and beyond the last one
/// with the last slope; or any function of the user's.
class Utility {
 public:
  /// `value` at once, nothing after `end`, and in between in proportion; less than nothing later.
  static Utility linear(double value, double end);
  /// (value, until when), ascending: from one to the next in straight lines. What is worth v at first is worth v at 0.
  static Utility steps(std::vector<std::pair<double, double>> points);
  /// As the user says: see scale/expression.h.
  static Utility formula(std::string_view text);
  /// extern "C" double pliant_utility(double seconds), in a shared object. The same on all workers, or they disagree.
  static Utility load(const std::string& path);
  /// "linear:100@3600", "steps:100@600+50@1200", "./mine.so" or a formula, like "100*exp(-t/600)"; Failure for anything
  /// else.
  static Utility parse(std::string_view text);

  /// The job's time as it is expected when first measured: steps that end earlier fall to nothing there.
  void expect(double seconds);
  /// Always finite: what is not a number is worth less than anything.
  double at(double seconds) const;
  /// Nothing is known of its shape: it may be flat, or fall at once, anywhere.
  bool any_shape() const { return function_ != nullptr; }

 private:
  struct Knot {
    double time, value;
  };
  double along_lines(double seconds) const;

  std::vector<Knot> knots_;  // at least two, ascending; none with
  std::function<double(double)> function_;
  bool open_ = false;  // expect() may add another knot
};

}  // namespace pliant::scale
