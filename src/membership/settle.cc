#include "membership/settle.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/planted.h"

namespace pliant::membership {
namespace {

using Kind = Verdict::Kind;

/// Has every result of step `step`.
bool has(const Report& report, std::uint64_t step) {
  return report.step > step || (report.step == step && report.in_step && (report.complete || report.closed));
}

/// May have acted on them.
bool has_acted(const Report& report, std::uint64_t step) {
  return report.step > step || (report.step == step && report.in_step && report.closed);
}

/// What cannot be true of two members of one job, `a` not ahead of `b`.
std::string objection_to(const Report& a, const Report& b) {
  if (b.step > a.step + 1) return fmt::format("one is at step {}, the other at {}", a.step, b.step);
  if (!a.in_step && has(b, a.step)) return fmt::format("one has step {} complete that the other has not begun", a.step);
  if (has_acted(b, a.step) && !has(a, a.step))
    return fmt::format("one has closed step {} that the other has not complete", a.step);
  if (b.step > a.step && b.in_step && b.complete)
    return fmt::format("one has step {} complete while the other is in step {}", b.step, a.step);
  if (a.step == b.step && a.digest != 0 && b.digest != 0 && a.digest != b.digest)
    return fmt::format("they differ in state before step {}", a.step);
  return {};
}

std::string objection_to_pair(const Report& a, const Report& b) {
  if (a.layout != b.layout) return "they share different things";
  if (a.blank || b.blank) return {};
  if (a.step > b.step) return objection_to(b, a);
  auto objection = objection_to(a, b);
  return objection.empty() && a.step == b.step ? objection_to(b, a) : objection;
}

std::string contradiction_in(const std::vector<Report>& reports) {
  for (std::size_t i = 0; i < reports.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (auto objection = objection_to_pair(reports[j], reports[i]); !objection.empty())
        return fmt::format("ranks {} and {}: {}", j, i, objection);
    }
  }
  return {};
}

template <class Test>
int lowest(const std::vector<Report>& reports, Test test) {
  const auto found = std::ranges::find_if(reports, [&](const Report& r) { return !r.blank && test(r); });
  return found == reports.end() ? -1 : static_cast<int>(found - reports.begin());
}

/// The step after which, or in which, the hindmost is.
std::uint64_t first_step(const std::vector<Report>& reports) {
  std::uint64_t first = UINT64_MAX;
  for (const auto& report : reports)
    if (!report.blank) first = std::min(first, report.step);
  return first;
}

}  // namespace

Verdict settle(const std::vector<Report>& reports) {
  Verdict verdict;
  verdict.contradiction = contradiction_in(reports);
  if (!verdict.contradiction.empty()) return verdict;
  const bool newcomers = std::ranges::any_of(reports, &Report::blank);
  verdict.state_from = newcomers ? std::max(0, lowest(reports, [](const Report&) { return true; })) : -1;
  const auto first = first_step(reports);
  if (first == UINT64_MAX) return verdict;

  const auto without = lowest(reports, [&](const Report& r) { return !has(r, first); });
  verdict.step = without >= 0 ? first : first + 1;
  verdict.begun = lowest(reports, [&](const Report& r) { return r.step == verdict.step && r.in_step; }) >= 0;
  if (verdict.begun) verdict.kind = Kind::redo;
  return verdict;
}

bool nobody_goes_on(const std::vector<Outlook>& outlooks) {
  return std::ranges::all_of(outlooks, [](const Outlook& outlook) { return outlook.leaving == Leaving::yes; });
}

std::optional<View> next_view(const View& now, const std::vector<Outlook>& outlooks, const std::optional<View>& plan) {
  PLIANT_ASSERT(static_cast<int>(outlooks.size()) == now.size());
  const auto named = outlooks.empty() ? 0 : outlooks.front().plan;
  const bool planned = named != 0 && std::ranges::all_of(outlooks, [&](const auto& o) { return o.plan == named; });
  PLIANT_ASSERT(!planned || (plan && plan->hash() == named));
  View next = planned ? *plan : now;
  const auto leaves = [&](const wire::Member& member) {
    const int rank = now.rank_of(member.id);
    return rank >= 0 && outlooks[static_cast<std::size_t>(rank)].leaving != Leaving::no;
  };
  const auto stays = [&](const wire::Member& member) { return now.rank_of(member.id) >= 0 && !leaves(member); };
  if (std::ranges::any_of(next.members, stays)) std::erase_if(next.members, leaves);
  const bool some_stay = std::ranges::any_of(next.members, [&](const auto& m) { return now.rank_of(m.id) >= 0; });
  next.newcomers.clear();
  for (const auto& member : next.members)
    if (now.rank_of(member.id) < 0) next.newcomers.push_back(member.id);
  std::ranges::sort(next.newcomers);
  if (planted("newcomers-vote")) next.newcomers.clear();
  if ((next.members == now.members && next.newcomers == now.newcomers) || !some_stay) return std::nullopt;
  next.epoch = next.planned = now.epoch + (planted("same-epoch") ? 0 : 1);
  return next;
}

}  // namespace pliant::membership
