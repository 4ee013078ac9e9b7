#include "scale/search.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "scale/model.h"

namespace pliant::scale {
namespace {

constexpr std::uint64_t kPatience = 4;  // windows for a size of which noise says now this, now that

std::vector<Point> listed(const Throughputs& seen, std::uint64_t least_count) {
  std::vector<Point> points;
  for (const auto& [workers, point] : seen.points())
    if (point.count >= least_count) points.push_back(point);
  return points;
}

/// What is nearer than this is the same.
int apart(int workers) { return std::max(1, workers / 8); }

/// Where others have changed the workers, sizes may be next to each other: there is no telling those apart. The largest
/// one stays.
std::vector<Point> spaced(const std::vector<Point>& points) {
  std::vector<Point> kept;
  for (const auto& point : points) {
    bool same = !kept.empty() && point.workers - kept.back().workers < apart(kept.back().workers);
    if (same && point.workers != points.back().workers) continue;
    if (same && kept.size() > 1) kept.pop_back();
    kept.push_back(point);
  }
  return kept;
}

/// Measured again, both might say the opposite.
bool noise_decides(const Condition& worth_it, const Point& fewer, const Point& more) {
  auto moved = [](Point point, double errors) {
    point.rate += errors * point.error();
    return point;
  };
  return worth_it(moved(fewer, -1), moved(more, 1)) != worth_it(moved(fewer, 1), moved(more, -1));
}

}  // namespace

int published_search(const Throughputs& seen, int now, const SearchOptions& options, const Condition& worth_it) {
  auto points = listed(seen, 1);
  if (points.empty()) return now;
  auto bounded = [&](int target) { return std::max(target, options.least); };
  if (points.size() == 1) return bounded(now < options.most ? now + options.stride : now - options.stride);
  std::vector<bool> worth;
  for (std::size_t i = 0; i + 1 < points.size(); ++i) worth.push_back(worth_it(points[i], points[i + 1]));
  auto first_not = static_cast<std::size_t>(std::ranges::find(worth, false) - worth.begin());
  auto passes = static_cast<std::size_t>(options.passes);
  if (first_not == worth.size() && points.back().workers != options.most)
    return bounded(points.back().workers + options.stride);
  if (first_not < std::max(passes, std::min(passes, worth.size())) && points.front().workers != options.least)
    return bounded(points.front().workers - options.stride);
  // points[first_not] is the last size that was worth it.
  if (first_not + 1 < points.size() && points[first_not + 1].count < options.settle)
    return bounded(points[first_not + 1].workers);
  return bounded(points[first_not].workers);
}

int add_one_search(const Throughputs& seen, int now, const SearchOptions& options, double alpha) {
  auto known = [&](int workers) { return seen.has(workers) && seen.at(workers).count >= options.window; };
  auto brings = [&](int workers) { return seen.at(workers).rate >= (1 + alpha / workers) * seen.at(workers - 1).rate; };
  if (!known(now)) return now;
  if (known(now - 1) && !brings(now)) return now - 1;
  if (known(now + 1) && !brings(now + 1)) return now;
  return std::min(now + 1, options.most);
}

int model_search(const Throughputs& seen, int now, const SearchOptions& options, const Value& value) {
  auto points = listed(seen, options.window);
  if (!seen.has(now) || seen.at(now).count < options.window) return now;
  if (points.size() == 1)
    return now < options.most ? std::min(options.most, 2 * now) : std::max(options.least, now / 2);
  std::vector<Observation> shapes;
  for (const auto& point : spaced(points))
    shapes.push_back({point.workers, point.samples / point.workers, point.samples / point.rate});
  auto model = fit(shapes);
  // A batch is given in all, or per worker: which one shows where the workers differ.
  auto samples = seen.at(now).samples;
  bool in_all = std::abs(points.front().samples - points.back().samples) <= 0.01 * samples;
  auto local_batch = [&](int workers) { return samples / (in_all ? workers : now); };
  int best = now;
  auto highest = value(seen.at(now));
  for (int workers = options.least; workers <= options.most; ++workers) {
    bool measured = seen.has(workers) && seen.at(workers).count >= options.window;
    auto worth =
        value(measured ? seen.at(workers)
                       : Point{workers, model.rate(workers, local_batch(workers)), 1, local_batch(workers) * workers});
    if (worth <= highest) continue;
    best = workers;
    highest = worth;
  }
  return std::min(best, 2 * points.back().workers);  // what is far away is seen better from nearer
}

std::optional<int> short_search(const Throughputs& seen, int now, const SearchOptions& options,
                                const Condition& worth_it) {
  if (!seen.has(now) || seen.at(now).count < options.window) return std::nullopt;
  auto points = spaced(listed(seen, options.window));
  std::size_t good = 0;  // the last size that was worth it, coming from a smaller one that was
  for (std::size_t next = 1; next < points.size(); ++next) {
    const auto &fewer = points[good], &more = points[next];
    if (noise_decides(worth_it, fewer, more)) {
      auto vague = [&](const Point& point) { return point.count < kPatience * options.window; };
      if (vague(seen.at(now)) && (fewer.workers == now || more.workers == now)) return std::nullopt;
      if (vague(fewer) || vague(more)) return vague(more) ? more.workers : fewer.workers;
    }
    // Where one is not, a larger one may be: it is further away, and noise says less there.
    if (worth_it(fewer, more)) good = next;
  }
  auto best = points[good].workers;
  bool topmost = good + 1 == points.size();
  if (topmost && best < options.most) return std::min(options.most, best * 2);
  if (good == 0 && best > options.least) return std::max(options.least, best / 2);  // was even this one worth it?
  // Between the neighbours that were measured there may be a better one: below, where doubling has gone too far, before
  // above.
  auto between = [](int fewer, int more) { return more - fewer >= 2 * apart(more); };
  if (good > 0 && between(points[good - 1].workers, best)) return (points[good - 1].workers + best) / 2;
  if (!topmost && between(best, points[good + 1].workers)) return (best + points[good + 1].workers) / 2;
  return best;
}

}  // namespace pliant::scale
