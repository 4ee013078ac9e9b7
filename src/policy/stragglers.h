// Does something about workers that hold the others up: asks for others in their place, or gives them less to do.
#pragma once

#include <pliant/policy.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "monitor/stragglers.h"
#include "policy/options.h"

namespace pliant::policy {

class StragglerPolicy final : public Policy {
 public:
  explicit StragglerPolicy(Options options);

  Action after_step(const StepReport& seen) override;
  std::string save() const override;
  void load(std::string_view saved) override;

 private:
  Action replace_slowest(const StepReport& seen);
  Action share_by_speed(const StepReport& seen);

  std::string remedy_;
  monitor::Stragglers stragglers_;
  std::uint64_t every_;                // steps between two changes of shares
  std::optional<std::uint64_t> slow_;  // whom somebody shall replace
  std::uint64_t asked_ = 0;            // in which step
  std::uint64_t pause_ = 0;            // steps until it is asked again
  std::uint64_t shared_ = 0;           // when shares were changed last
  std::map<std::uint64_t, double> shares_;
};

}  // namespace pliant::policy
