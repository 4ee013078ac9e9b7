// The autoscaling engine as a policy: every worker's copy sees the same steps and comes to the same wish.
#pragma once

#include <pliant/policy.h>

#include <optional>
#include <string>

#include "policy/options.h"
#include "scale/engine.h"
#include "scale/search.h"
#include "scale/utility.h"

namespace pliant::policy {

class Autoscale final : public Policy {
 public:
  explicit Autoscale(Options options);
  Action after_step(const StepReport& seen) override;
  std::string save() const override;
  void load(std::string_view saved) override;

 private:
  std::optional<int> search(const scale::Throughputs& seen, int now) const;
  bool worth_it(const scale::Point& fewer, const scale::Point& more) const;
  double value_of(const scale::Point& point) const;
  bool breaks_its_promise(int workers) const;
  scale::Remaining remaining() const;
  void expect(double seconds);

  scale::SearchOptions search_;
  std::string by_;  // what decides
  bool published_;  // how sizes are gone through, if efficiency or utility decides
  double efficiency_;
  std::optional<scale::Utility> utility_;
  double price_;     // of a worker's second
  double deadline_;  // seconds
  double budget_;
  double reserve_;  // of what is left of them
  scale::Engine engine_;
  // Of the steps so far: a report says how long the step before took.
  int workers_ = 0;
  double samples_ = 0;
  double elapsed_ = 0, all_samples_ = 0, progress_ = 0;
  double spent_ = 0;  // worker-seconds
  double base_batch_ = 0, noise_scale_ = 0;
  double expected_ = 0;  // seconds of the whole job, when first measured
};

}  // namespace pliant::policy
