// A policy for tests.
#pragma once

#include <pliant/policy.h>

#include <functional>
#include <utility>

namespace pliant::policy {

/// Does whatever it is told after a step.
class Scripted final : public Policy {
 public:
  explicit Scripted(std::function<Action(const StepReport&)> after_step) : after_step_(std::move(after_step)) {}
  Action after_step(const StepReport& seen) override { return after_step_(seen); }

 private:
  std::function<Action(const StepReport&)> after_step_;
};

}  // namespace pliant::policy
