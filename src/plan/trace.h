// What a cloud gives and asks for it, over time.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "base/result.h"

namespace pliant::plan {

/// From `time` on, until the next one.
struct Offer {
  double time = 0;   ///< seconds
  int capacity = 0;  ///< workers that can be had
  double price = 0;  ///< of a worker's hour

  bool operator==(const Offer&) const = default;
};

class Trace {
 public:
  /// One offer that never ends.
  Trace(int capacity, double price) : offers_{{0, capacity, price}} {}
  /// CSV: seconds,capacity,price; a header and lines that begin with # are left out. Code::invalid names the line.
  static Result<Trace> read(std::istream& in, const std::string& name);

  const Offer& at(double time) const;
  /// When it changes next; infinity if it does not.
  double next_after(double time) const;
  const std::vector<Offer>& offers() const { return offers_; }

 private:
  Trace() = default;
  std::vector<Offer> offers_;  // ascending, the first one at 0
};

}  // namespace pliant::plan
