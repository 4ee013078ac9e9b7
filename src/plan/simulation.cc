#include "plan/simulation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/measured.h"

namespace pliant::plan {
namespace {

constexpr double kHour = 3600;

class Run {
 public:
  Run(const Job& job, const Trace& trace, int workers) : job_(job), trace_(trace), wanted_(workers) {}

  Outcome through(const std::vector<Policy*>& policies) {
    size_ = std::min(wanted_, trace_.at(0).capacity);
    out_.changes.push_back({0, size_, 0});
    while (done_ < job_.samples) {
      if (size_ < job_.least && !wait_for_capacity()) return out_;
      if (policies.empty() && !job_.step_seconds && out_.steps > 0 && !changed_) skip_equal_steps();
      step(policies);
    }
    out_.finished = true;
    return out_;
  }

 private:
  double step_seconds() const {
    auto local = std::max(1.0, batch() / size_);
    if (job_.step_seconds) return job_.step_seconds(size_, local);
    return job_.step.seconds(size_, local) * correction_at(job_.corrections, size_);
  }
  double batch() const { return job_.global_batch > 0 ? job_.global_batch : job_.local_batch * size_; }

  /// Time passes for those that are there and those that start.
  void pass(double seconds) {
    auto end = out_.seconds + seconds;
    while (out_.seconds < end) {
      auto until = std::min(end, trace_.next_after(out_.seconds));
      auto paid = (until - out_.seconds) * (size_ + starting_);
      out_.worker_seconds += paid;
      out_.money += paid * trace_.at(out_.seconds).price / kHour;
      out_.seconds = until;
    }
  }

  void become(int workers) {
    if (workers == size_) return;
    size_ = workers;
    out_.changes.push_back({out_.seconds, size_, out_.steps});
    changed_ = true;
  }

  /// Too few to train: until the trace gives enough, if it ever does.
  bool wait_for_capacity() {
    while (trace_.at(out_.seconds).capacity < job_.least) {
      auto next = trace_.next_after(out_.seconds);
      if (!std::isfinite(next)) return false;
      pass(next - out_.seconds);
    }
    starting_ = std::min(std::max(wanted_, job_.least), trace_.at(out_.seconds).capacity) - size_;
    pass(job_.start_seconds);
    become(size_ + std::exchange(starting_, 0));
    return true;
  }

  /// Those that capacity takes leave; those that were asked for and are ready come.
  void follow() {
    auto capacity = trace_.at(out_.seconds).capacity;
    auto target = std::clamp(wanted_, job_.least, job_.most);
    if (capacity < size_) become(capacity);
    if (target < size_) become(target);
    if (starting_ > 0 && out_.seconds >= ready_) become(std::min(size_ + std::exchange(starting_, 0), capacity));
    if (starting_ == 0 && target > size_ && capacity > size_) {
      starting_ = std::min(target, capacity) - size_;
      ready_ = out_.seconds + job_.start_seconds;
    }
  }

  /// Nothing happens until the trace changes, somebody is ready, or the job is nearly done.
  void skip_equal_steps() {
    auto until = trace_.next_after(out_.seconds);
    if (starting_ > 0) until = std::min(until, ready_);
    auto equal = std::min((until - out_.seconds) / step_seconds(), (job_.samples - done_) / batch());
    auto steps = std::floor(equal) - 1;
    if (!(steps > 1)) return;
    out_.steps += static_cast<std::uint64_t>(steps);
    done_ += steps * batch();
    pass(steps * step_seconds());
  }

  void step(const std::vector<Policy*>& policies) {
    auto samples = std::min(batch(), job_.samples - done_);
    auto seconds = step_seconds();
    auto stall = std::exchange(changed_, false) && out_.steps > 0 ? job_.change_seconds : 0;
    StepReport report;
    report.step = out_.steps++;
    report.size = size_;
    report.samples = static_cast<std::uint64_t>(std::llround(samples));
    report.global_batch = static_cast<std::uint64_t>(std::llround(batch()));
    report.local_batch = static_cast<std::uint64_t>(std::llround(batch() / size_));
    if (job_.noise_scale > 0) report.noise_scale = job_.noise_scale;
    report.times = times_;
    times_ = {.compute = seconds, .stall = stall};
    done_ += samples;
    report.progress = done_ / job_.samples;
    pass(seconds + stall);
    for (auto* policy : policies)
      if (auto action = policy->after_step(report); action.workers) wanted_ = *action.workers;
    follow();
  }

  const Job& job_;
  const Trace& trace_;
  Outcome out_;
  int size_ = 0, wanted_ = 0;
  int starting_ = 0;
  double ready_ = 0;
  double done_ = 0;
  bool changed_ = false;
  StepTimes times_;
};

}  // namespace

Outcome simulate(const Job& job, const Trace& trace, int workers, const std::vector<Policy*>& policies) {
  return Run(job, trace, workers).through(policies);
}

}  // namespace pliant::plan
