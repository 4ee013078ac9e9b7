#include "scale/condition.h"

namespace pliant::scale {

double scaling_efficiency(const Point& fewer, const Point& more) {
  auto added = static_cast<double>(more.workers - fewer.workers);
  return ((more.rate - fewer.rate) / added) / (fewer.rate / static_cast<double>(fewer.workers));
}

Condition efficient(double least) {
  return [least](const Point& fewer, const Point& more) { return scaling_efficiency(fewer, more) > least; };
}

double end_of(const Remaining& job, const Point& point) { return job.elapsed + job.batches * (job.batch / point.rate); }

double cost_of(const Remaining& job, const Point& point) {
  return job.price * job.batches * static_cast<double>(point.workers) * (job.batch / point.rate);
}

bool worth_its_cost(const Utility& utility, const Remaining& job, const Point& fewer, const Point& more) {
  auto gained = utility.at(end_of(job, more)) - utility.at(end_of(job, fewer));
  auto paid = cost_of(job, more) - cost_of(job, fewer);
  return gained > paid;
}

}  // namespace pliant::scale
