#include "plan/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace pliant::plan {

Result<Trace> Trace::read(std::istream& in, const std::string& name) {
  Trace trace;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    auto wrong = [&](const std::string& what) {
      return Error{Code::invalid, fmt::format("{}:{}: {}", name, number, what)};
    };
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#' || (trace.offers_.empty() && std::isalpha(static_cast<unsigned char>(line[0]))))
      continue;
    Offer offer;
    double capacity = 0;
    char rest = 0;
    auto read = std::sscanf(line.c_str(), "%lf , %lf , %lf %c", &offer.time, &capacity, &offer.price, &rest);
    if (read != 3) return wrong(fmt::format("'{}' is not seconds,capacity,price", line));
    if (!std::isfinite(offer.time) || offer.time < 0) return wrong("a time must be 0 or later");
    if (!(capacity >= 0 && capacity <= 1'000'000) || capacity != std::floor(capacity))
      return wrong("a capacity is a whole number of workers");
    if (!std::isfinite(offer.price) || offer.price < 0) return wrong("a price cannot be less than nothing");
    if (!trace.offers_.empty() && offer.time <= trace.offers_.back().time) return wrong("times must ascend");
    offer.capacity = static_cast<int>(capacity);
    trace.offers_.push_back(offer);
  }
  if (trace.offers_.empty()) return Error{Code::invalid, fmt::format("{}: no offers in it", name)};
  trace.offers_.front().time = 0;  // what is known first held before, too
  return trace;
}

const Offer& Trace::at(double time) const {
  auto after = std::ranges::upper_bound(offers_, time, {}, &Offer::time);
  return after == offers_.begin() ? offers_.front() : *std::prev(after);
}

double Trace::next_after(double time) const {
  auto after = std::ranges::upper_bound(offers_, time, {}, &Offer::time);
  return after == offers_.end() ? std::numeric_limits<double>::infinity() : after->time;
}

}  // namespace pliant::plan
