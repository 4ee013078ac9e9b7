#include "policy/autoscale.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <sstream>
#include <utility>

#include "base/result.h"
#include "scale/condition.h"
#include "scale/model.h"

namespace pliant::policy {
namespace {

constexpr double kMissed = -1e12;  // the value of a size with which a promise is broken, and less

scale::SearchOptions search_from(Options& options) {
  scale::SearchOptions search;
  search.least = static_cast<int>(options.count("min", 1));
  search.most = static_cast<int>(options.count("max", 16));
  search.stride = static_cast<int>(options.count("stride", 4));
  search.window = options.count("window", 4);
  search.settle = options.count("settle", 100);
  if (search.least > search.most) throw Failure(Code::invalid, "min is more than max");
  return search;
}

scale::EngineOptions engine_from(Options& options, bool published, std::uint64_t window) {
  scale::EngineOptions engine;
  engine.every = options.count("every", published ? 10 : 1);
  engine.drift = published ? 0 : options.number("drift", 0.3);
  engine.window = window;
  engine.patience = options.count("patience", engine.patience);
  return engine;
}

}  // namespace

Autoscale::Autoscale(Options options)
    : search_(search_from(options)),
      by_(options.choice("by", {"efficiency", "utility", "add-one", "goodput", "deadline", "budget"})),
      published_(options.choice("search", {"short", "published"}) == "published"),
      efficiency_(options.number("efficiency", 0.1)),
      price_(options.number("price", 1)),
      deadline_(options.number("deadline", 0)),
      budget_(options.number("budget", 0)),
      reserve_(options.number("reserve", 0.05)),
      engine_(engine_from(options, published_, search_.window),
              [this](const scale::Throughputs& seen, int now) { return search(seen, now); }) {
  auto utility = options.text("utility");
  if (!utility.empty()) utility_ = scale::Utility::parse(utility);
  if (by_ == "efficiency") by_ = utility_ ? "utility" : deadline_ > 0 ? "deadline" : budget_ > 0 ? "budget" : by_;
  if (by_ == "utility" && !utility_) throw Failure(Code::invalid, "by=utility needs one, like utility=linear:100@3600");
  if (by_ == "deadline" && !(deadline_ > 0)) throw Failure(Code::invalid, "by=deadline needs deadline=SECONDS");
  if (by_ == "budget" && !(budget_ > 0)) throw Failure(Code::invalid, "by=budget needs budget=MONEY");
  if (!(reserve_ >= 0 && reserve_ < 1)) throw Failure(Code::invalid, "reserve is a part: from 0 to less than 1");
  if (!(price_ >= 0)) throw Failure(Code::invalid, "a worker's second cannot cost less than nothing");
  options.refuse_rest();
}

std::optional<int> Autoscale::search(const scale::Throughputs& seen, int now) const {
  auto worth = [this](const auto& fewer, const auto& more) { return worth_it(fewer, more); };
  if (by_ == "add-one") return add_one_search(seen, now, search_);
  // Where a utility may be flat, neighbours say nothing: only a model sees that ten more workers would be in time.
  bool by_neighbours = by_ == "efficiency" || (by_ == "utility" && (published_ || !utility_->any_shape()));
  if (by_neighbours && published_) return published_search(seen, now, search_, worth);
  if (by_neighbours) return short_search(seen, now, search_, worth);
  return model_search(seen, now, search_, [this](const auto& point) { return value_of(point); });
}

/// In batches of one sample: the batch itself may change with the workers.
scale::Remaining Autoscale::remaining() const {
  auto left = progress_ > 0 ? all_samples_ * (1 - progress_) / progress_ : 0;
  return {left, 1, elapsed_, price_};
}

bool Autoscale::worth_it(const scale::Point& fewer, const scale::Point& more) const {
  if (by_ == "efficiency") return scaling_efficiency(fewer, more) > efficiency_;
  return worth_its_cost(*utility_, remaining(), fewer, more);
}

/// What a size is worth where a model knows them all.
double Autoscale::value_of(const scale::Point& point) const {
  if (by_ == "goodput") return point.rate * scale::statistical_efficiency(noise_scale_, base_batch_, point.samples);
  auto job = remaining();
  if (by_ == "utility") return utility_->at(end_of(job, point)) - cost_of(job, point);
  // Who keeps to the plan has ever more of the reserve, so that it does not have to be looked at again.
  auto with_reserve = [this](double limit, double used) { return limit - reserve_ * std::max(0.0, limit - used); };
  auto end = end_of(job, point);
  if (by_ == "deadline")  // the cheapest in time, or else the fastest
    return end <= with_reserve(deadline_, elapsed_) ? -static_cast<double>(point.workers) : kMissed - end;
  auto spent = price_ * spent_;
  auto cost = spent + cost_of(job, point);  // the fastest within the budget, or else the cheapest
  return cost <= with_reserve(budget_, spent) ? -end : kMissed - cost;
}

/// The search was over, but with what is known by now its end is no good: too late, too dear. Asked ever less often.
bool Autoscale::breaks_its_promise(int workers) const {
  bool due = engine_.settled() && !engine_.pending() && engine_.steady() > search_.window &&
             std::has_single_bit(engine_.steady());
  if (!due || !engine_.seen().has(workers)) return false;
  const auto& point = engine_.seen().at(workers);
  if (by_ == "utility") return utility_->any_shape() && value_of(point) < 0;
  return (by_ == "deadline" || by_ == "budget") && value_of(point) <= kMissed;
}

Action Autoscale::after_step(const StepReport& seen) {
  auto seconds = seen.times.whole();
  auto workers = std::exchange(workers_, seen.size);
  auto samples = std::exchange(samples_, static_cast<double>(seen.samples));
  auto progress = std::exchange(progress_, seen.progress);
  if (workers == 0 || !(seconds > 0)) return keep();
  if (elapsed_ == 0 && progress > 0) expect(seconds / progress);
  elapsed_ += seconds;
  spent_ += seconds * workers;
  all_samples_ += samples;
  if (base_batch_ == 0) base_batch_ = samples;
  noise_scale_ = seen.noise_scale.value_or(noise_scale_);
  if (breaks_its_promise(workers)) engine_.look_again();
  bool was_settled = engine_.settled();
  auto wanted = engine_.after_step(workers, samples / seconds, samples);
  if (wanted && *wanted != seen.size) return resize(*wanted);
  if (engine_.settled() && !was_settled)
    return (workers == seen.size ? settle_at(workers) : keep())
        .also(say(fmt::format("{} workers it is: {:.4g} samples/s", workers, engine_.seen().at(workers).rate)));
  return keep();
}

void Autoscale::expect(double seconds) {
  expected_ = seconds;
  if (utility_) utility_->expect(seconds);
}

std::string Autoscale::save() const {
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", workers_, samples_, elapsed_, all_samples_, progress_, spent_,
                     base_batch_, noise_scale_, expected_, engine_.save());
}

void Autoscale::load(std::string_view saved) {
  std::istringstream in{std::string(saved)};
  double expected = 0;
  in >> workers_ >> samples_ >> elapsed_ >> all_samples_ >> progress_ >> spent_ >> base_batch_ >> noise_scale_ >>
      expected;
  if (expected > 0) expect(expected);
  std::string rest;
  std::getline(in, rest);
  engine_.load(rest);
}

}  // namespace pliant::policy
