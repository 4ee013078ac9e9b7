#include "apps/pliant/account.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "apps/pliant/command.h"

namespace pliant::cli {
namespace {

constexpr double kLongEnough = 0.5;  // seconds at a size that tell how fast it is
constexpr std::size_t kMostSizes = 8;

}  // namespace

Result<Prices> parse_prices(const std::string& text) {
  Prices prices;
  std::istringstream list(text);
  for (std::string entry; std::getline(list, entry, ',');) {
    auto cut = entry.find('=');
    auto kind = cut == std::string::npos ? std::string() : entry.substr(0, cut);
    auto number = cut == std::string::npos ? entry : entry.substr(cut + 1);
    double price = 0;
    auto end = number.data() + number.size();
    bool fits = !number.empty() && std::from_chars(number.data(), end, price).ptr == end && std::isfinite(price);
    if (!fits) return Error{Code::invalid, fmt::format("'{}' is not the price of a worker's hour", entry)};
    if (price < 0) return Error{Code::invalid, fmt::format("a price cannot be less than nothing: '{}'", entry)};
    if (cut == 0 || !prices.emplace(kind, price).second)
      return Error{Code::invalid, fmt::format("'{}': a class has one price, and a name", entry)};
  }
  if (prices.empty()) return Error{Code::invalid, "a price is the price of a worker's hour: 0.9, or spot=0.3,firm=0.9"};
  return prices;
}

void Account::price(double now, const std::string& kind) {
  auto at = prices_.find(kind);
  if (at == prices_.end()) at = prices_.find("");
  if (at != prices_.end())
    bill_.set_price(now, kind, at->second);
  else if (!prices_.empty() && std::ranges::find(unpriced_, kind) == unpriced_.end())
    unpriced_.push_back(kind);
}

void Account::set_price(double now, double per_hour) {
  prices_[""] = per_hour;
  unpriced_.clear();
  for (const auto& line : bill_.lines(now)) price(now, line.kind);
}

void Account::on_state(double now, const wire::JobState& state) {
  std::vector<std::string> kinds;
  for (const auto& count : state.headcount) {
    price(now, count.kind);
    bill_.set_crew(now, count.kind, {count.starting, count.training, count.waiting});
    kinds.push_back(count.kind);
  }
  bill_.only(now, kinds);
  if (std::exchange(view_, state.view.epoch) == state.view.epoch) return;
  workers_ = static_cast<int>(state.view.members.size());
  last_.reset();
}

void Account::on_progress(double now, const wire::Progress& progress) {
  samples_ = progress.samples;
  Mark here{now, progress.samples};
  if (!first_) first_ = here;
  if (last_ && progress.samples <= last_->samples) return;
  if (last_ && workers_ > 0) {
    auto& stretch = stretches_[workers_];
    stretch.seconds += now - last_->at;
    stretch.samples += static_cast<double>(progress.samples - last_->samples);
  }
  last_ = here;
}

std::vector<std::string> Account::words(double now) const {
  auto total = bill_.total(now);
  if (!(total.seconds[static_cast<std::size_t>(scale::Phase::training)] > 0)) return {};
  std::vector<std::string> lines = {bill_.text(now)};
  if (!unpriced_.empty()) lines[0] += fmt::format(" (no price for: {})", fmt::join(unpriced_, ", "));
  scale::Throughputs seen;
  for (const auto& [workers, stretch] : stretches_)
    if (stretch.seconds >= kLongEnough) seen.put({workers, stretch.samples / stretch.seconds, 1, 0});
  if (seen.points().size() < 2 || !first_) return lines;
  auto samples = static_cast<double>(samples_ - first_->samples);  // a job may have begun with a checkpoint
  auto sizes = scale::fixed_sizes(seen, samples, total, bill_.priced());
  if (sizes.size() > kMostSizes) {  // the fastest ones, in their order
    std::ranges::nth_element(sizes, sizes.begin() + kMostSizes, {}, &scale::FixedSize::seconds);
    sizes.resize(kMostSizes);
    std::ranges::sort(sizes, {}, &scale::FixedSize::workers);
  }
  std::vector<std::string> each;
  for (const auto& size : sizes) {
    each.push_back(fmt::format("{} in {} for {}", size.workers, format_span(size.seconds),
                               scale::format_work(size.worker_seconds)));
    if (size.money) each.back() += fmt::format(" ({:.4g})", *size.money);
  }
  lines.push_back(fmt::format("the same work with a fixed number of workers: {}", fmt::join(each, "; ")));
  return lines;
}

}  // namespace pliant::cli
