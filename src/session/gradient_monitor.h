// What is measured of a step's gradients while they are reduced, for monitors and policies.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "collective/group.h"
#include "session/training.h"

namespace pliant::session {

class GradientMonitor {
 public:
  /// `wait` waits for a reduction, whatever happens to the view.
  using Wait = std::function<void(const step::StepReductionPtr&)>;
  GradientMonitor(Training& training, Wait wait) : training_(training), wait_(std::move(wait)) {}

  /// What is to be measured of this step's gradients.
  collective::Measure measure() const;
  /// The step is closed: tells the monitors. `alone`: in a job of one, whose gradients are compared with those of the
  /// step before.
  void observe(bool alone);

 private:
  std::vector<double> tensor_variances();

  Training& training_;
  const Wait wait_;
  std::map<std::string, std::vector<std::byte>> last_gradient_;  // of a job of one, by name
};

}  // namespace pliant::session
