// What is told of a job's steps: reports for policies, metrics for the program, progress for the coordinator.
#pragma once

#include <pliant/pliant.h>

#include <cmath>
#include <map>
#include <string>

#include "base/metrics.h"
#include "session/training.h"
#include "session/view_driver.h"

namespace pliant::session {

class Reporter {
 public:
  Reporter(const Training& training, const ViewDriver& views) : training_(training), views_(views) {}

  const std::map<std::string, double>& averages() const { return averages_; }
  void set_averages(const step::Summary& summary);
  /// NaN if the program logs none.
  double loss() const;
  /// The learning rate of the current step.
  void set_rate(double rate) { rate_ = rate; }
  double rate() const { return rate_; }

  /// Of the step that is going on, before it is committed.
  StepReport report_of_step() const;
  /// It is committed, and this is what policies were told.
  void conclude(StepReport report);
  const StepReport& report() const { return report_; }
  Metrics& metrics() { return metrics_; }
  /// Tells the coordinator, if this worker speaks for the job.
  void tell_progress();

 private:
  const Training& training_;
  const ViewDriver& views_;
  double rate_ = std::nan("");
  std::map<std::string, double> averages_;
  StepReport report_;
  Metrics metrics_;
};

}  // namespace pliant::session
