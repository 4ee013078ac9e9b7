#include "scale/bill.h"

#include <fmt/format.h>

#include <algorithm>

namespace pliant::scale {

void Bill::settle(double now, Account& account) const {
  auto seconds = std::max(now - account.since, 0.0);
  account.since = std::max(now, account.since);
  auto price = prices_.find(account.line.kind);
  for (std::size_t phase = 0; phase < account.crew.size(); ++phase) {
    auto worked = seconds * account.crew[phase];
    account.line.seconds[phase] += worked;
    if (price != prices_.end()) account.line.money += worked * price->second / 3600;
  }
}

Bill::Account& Bill::account_of(const std::string& kind, double now) {
  auto [at, is_new] = accounts_.try_emplace(kind);
  if (is_new) at->second.line.kind = kind;
  settle(now, at->second);
  return at->second;
}

void Bill::set_price(double now, const std::string& kind, double per_hour) {
  if (auto at = accounts_.find(kind); at != accounts_.end()) settle(now, at->second);
  prices_[kind] = per_hour;
}

void Bill::set_crew(double now, const std::string& kind, const Crew& crew) { account_of(kind, now).crew = crew; }

void Bill::only(double now, const std::vector<std::string>& kinds) {
  for (auto& [kind, account] : accounts_)
    if (std::ranges::find(kinds, kind) == kinds.end()) set_crew(now, kind, {});
}

void Bill::carry_over(const std::vector<BillLine>& lines) {
  for (const auto& line : lines) {
    auto& account = accounts_[line.kind];
    account.line.kind = line.kind;
    for (std::size_t i = 0; i < line.seconds.size(); ++i) account.line.seconds[i] += line.seconds[i];
    account.line.money += line.money;
  }
}

std::vector<BillLine> Bill::lines(double now) const {
  std::vector<BillLine> lines;
  for (auto [kind, account] : accounts_) {
    settle(now, account);
    lines.push_back(account.line);
  }
  return lines;
}

BillLine Bill::total(double now) const {
  BillLine all;
  for (const auto& line : lines(now)) {
    for (std::size_t i = 0; i < line.seconds.size(); ++i) all.seconds[i] += line.seconds[i];
    all.money += line.money;
  }
  return all;
}

std::string Bill::text(double now) const {
  auto all = total(now);
  auto seconds = all.worker_seconds();
  auto share = [&](Phase phase) {
    return seconds > 0 ? 100 * all.seconds[static_cast<std::size_t>(phase)] / seconds : 0;
  };
  auto text = fmt::format("{} of work ({:.0f} % training, {:.0f} % starting, {:.0f} % waiting)", format_work(seconds),
                          share(Phase::training), share(Phase::starting), share(Phase::waiting));
  if (priced()) text += fmt::format(", {:.4g} in money", all.money);
  auto each = lines(now);
  if (each.size() < 2) return text;
  for (const auto& line : each) {
    text += fmt::format("; {}: {}", line.kind.empty() ? "others" : line.kind, format_work(line.worker_seconds()));
    if (priced()) text += fmt::format(", {:.4g}", line.money);
  }
  return text;
}

std::vector<FixedSize> fixed_sizes(const Throughputs& seen, double samples, const BillLine& paid, bool priced) {
  std::vector<FixedSize> sizes;
  for (const auto& [workers, point] : seen.points()) {
    if (!(point.rate > 0)) continue;
    FixedSize size{workers, samples / point.rate, samples / point.rate * workers};
    if (priced && paid.worker_seconds() > 0) size.money = size.worker_seconds * paid.money / paid.worker_seconds();
    sizes.push_back(size);
  }
  return sizes;
}

std::string format_work(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} worker-seconds", seconds);
  return seconds < 7200 ? fmt::format("{:.1f} worker-minutes", seconds / 60)
                        : fmt::format("{:.2f} worker-hours", seconds / 3600);
}

}  // namespace pliant::scale
