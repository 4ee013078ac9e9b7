#include "scale/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "base/result.h"

namespace pliant::scale {

std::optional<int> Engine::after_step(int workers, double rate, double samples) {
  ++steps_;
  bool first = workers != std::exchange(workers_, workers);
  if (first && steps_ > 1) changed_ = steps_;
  // The first steps of a size have its transition in them.
  if ((changed_ == 0 || steps_ - changed_ >= options_.skip) && rate > 0) seen_.add(workers, rate, samples);
  if (wanted_ != 0) {
    if (workers == wanted_) {
      wanted_ = 0;
      patience_ = options_.patience;
    } else if (steps_ - asked_ < std::max(patience_, options_.patience)) {
      return std::nullopt;
    } else {  // nobody gives it: go on with what there is, and ask less and less often
      wanted_ = 0;
      patience_ = 2 * std::max(patience_, options_.patience);
    }
  }
  if (settled_ != 0 && workers != settled_) return ask(settled_);  // others have changed it: what was found still holds
  if (settled_ != 0 && stays(rate)) return std::nullopt;
  if (steps_ % options_.every != 0) return std::nullopt;
  auto target = search_(seen_, workers);
  if (!target) return std::nullopt;
  if (*target == workers) {
    if (options_.drift > 0 && seen_.has(workers) && seen_.at(workers).count >= options_.window) settle(workers);
    return std::nullopt;
  }
  return ask(*target);
}

int Engine::ask(int workers) {
  wanted_ = workers;
  asked_ = steps_;
  return workers;
}

void Engine::settle(int workers) {
  settled_ = workers;
  found_ = recent_ = seen_.at(workers).rate;
}

/// The rate is what it was found to be: then noise changes nothing.
bool Engine::stays(double rate) {
  recent_ += (rate - recent_) / static_cast<double>(options_.window);
  if (std::abs(recent_ - found_) <= options_.drift * found_) return true;
  settled_ = 0;
  seen_.forget();  // it is another job now
  return false;
}

std::string Engine::save() const {
  auto text = fmt::format("{} {} {} {} {} {} {} {} {} {}", steps_, changed_, workers_, wanted_, asked_, patience_,
                          settled_, found_, recent_, seen_.points().size());
  for (const auto& [workers, point] : seen_.points())
    text += fmt::format(" {} {} {} {} {}", workers, point.rate, point.count, point.samples, point.squares);
  return text;
}

void Engine::load(std::string_view saved) {
  std::istringstream in{std::string(saved)};
  std::size_t points = 0;
  in >> steps_ >> changed_ >> workers_ >> wanted_ >> asked_ >> patience_ >> settled_ >> found_ >> recent_ >> points;
  seen_.forget();
  for (std::size_t i = 0; i < points && in; ++i) {
    Point point;
    in >> point.workers >> point.rate >> point.count >> point.samples >> point.squares;
    seen_.put(point);
  }
  if (!in) throw Failure(Code::invalid, "malformed state of the autoscaling engine");
}

}  // namespace pliant::scale
