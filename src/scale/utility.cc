#include "scale/utility.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/result.h"
#include "scale/expression.h"

namespace pliant::scale {
namespace {

double number_in(std::string_view text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw Failure(Code::invalid, fmt::format("'{}' is not a number", text));
  return value;
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (auto at = text.find(by); at != std::string_view::npos; at = text.find(by)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.push_back(text);
  return parts;
}

/// No formula begins or ends like this.
bool is_path(std::string_view text) {
  return text.starts_with('/') || text.starts_with("./") || text.starts_with("../") || text.ends_with(".so");
}

}  // namespace

Utility Utility::linear(double value, double end) {
  if (!(value > 0 && end > 0)) throw Failure(Code::invalid, "a linear utility needs a value and an end above 0");
  Utility utility;
  utility.knots_ = {{0, value}, {end, 0}};
  return utility;
}

Utility Utility::steps(std::vector<std::pair<double, double>> points) {
  if (points.empty()) throw Failure(Code::invalid, "a utility of steps needs points, like 100@600");
  Utility utility;
  if (points.front().second > 0) utility.knots_.push_back({0, points.front().first});
  for (auto [value, time] : points) {
    if (!utility.knots_.empty() && time <= utility.knots_.back().time)
      throw Failure(Code::invalid, "the points of a utility must be in order of time");
    utility.knots_.push_back({time, value});
  }
  utility.open_ = true;
  return utility;
}

Utility Utility::formula(std::string_view text) {
  Utility utility;
  utility.function_ = [expression = Expression::parse(text)](double seconds) { return expression.at(seconds); };
  return utility;
}

Utility Utility::load(const std::string& path) {
  auto full = std::filesystem::absolute(path).string();
  void* object = dlopen(full.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: its code may be running
  if (!object) throw Failure(Code::not_found, fmt::format("utility {}: {}", path, dlerror()));
  using Function = double (*)(double);
  auto function = reinterpret_cast<Function>(dlsym(object, "pliant_utility"));
  if (!function) throw Failure(Code::invalid, fmt::format("utility {}: it has no pliant_utility(double)", path));
  Utility utility;
  utility.function_ = function;
  return utility;
}

Utility Utility::parse(std::string_view text) {
  if (is_path(text)) return load(std::string(text));
  auto colon = text.find(':');
  try {
    if (colon == std::string_view::npos) return formula(text);
  } catch (const Failure& problem) {
    throw Failure(problem.code(), fmt::format("utility {}: {}", text, problem.what()));
  }
  auto kind = text.substr(0, colon);
  if (kind != "linear" && kind != "steps")
    throw Failure(Code::invalid,
                  fmt::format("there is no utility '{}': linear:100@3600, steps:100@600+50@1200, a shared "
                              "object, or a formula like 100*exp(-t/600)",
                              kind));
  std::vector<std::pair<double, double>> points;
  for (auto part : split(text.substr(colon + 1), '+')) {
    auto at = part.find('@');
    if (at == std::string_view::npos) throw Failure(Code::invalid, fmt::format("'{}' is not like 100@600", part));
    points.emplace_back(number_in(part.substr(0, at)), number_in(part.substr(at + 1)));
  }
  if (kind == "steps") return steps(std::move(points));
  if (points.size() != 1) throw Failure(Code::invalid, "a linear utility is one value at 0 and where it is nothing");
  return linear(points[0].first, points[0].second);
}

void Utility::expect(double seconds) {
  if (open_ && seconds > knots_.back().time) knots_.push_back({seconds, 0});
  open_ = false;
}

double Utility::at(double seconds) const {
  constexpr double kMost = 1e300;  // so that differences are finite, too
  auto value = function_ ? function_(seconds) : along_lines(seconds);
  return std::isnan(value) ? -kMost : std::clamp(value, -kMost, kMost);
}

double Utility::along_lines(double seconds) const {
  auto after = std::ranges::upper_bound(knots_, seconds, {}, &Knot::time);
  if (after == knots_.begin()) ++after;
  if (after == knots_.end()) --after;
  if (after == knots_.begin()) return after->value;  // a single one
  auto before = std::prev(after);
  auto slope = (after->value - before->value) / (after->time - before->time);
  return before->value + slope * (seconds - before->time);
}

}  // namespace pliant::scale
