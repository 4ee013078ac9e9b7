#include "membership/sim_checker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pliant::membership::sim {
namespace {

std::string text_of_entry(const Entry& entry) {
  return fmt::format("step {} in {:x} by {{{}}}", entry.step, entry.view & 0xffff, fmt::join(entry.contributors, " "));
}

}  // namespace

void Checker::fail(Id id, const std::string& what) {
  if (failure_.empty()) failure_ = fmt::format("member {}: {}", id, what);
}

void Checker::entered(Id id, const View& view) {
  const auto [at, is_new] = chain_.try_emplace(view.epoch, view.members);
  if (!is_new && at->second != view.members)
    fail(id, fmt::format("two memberships of one epoch: {} is not the one entered before", text_of(view)));
}

void Checker::completed(Id id, const View& view, const Entry& entry) {
  auto& done = done_[view.epoch];
  done.first = std::min(done.first, entry.step);
  done.last = std::max(done.last, entry.step);
  for (const auto& [epoch, other] : done_) {
    const auto &older = epoch < view.epoch ? other : done, &later = epoch < view.epoch ? done : other;
    if (epoch != view.epoch && older.last > later.first)
      fail(id, fmt::format("{} is beyond the first step of a later view", text_of_entry(entry)));
  }
}

void Checker::committed(Id id, const Entry& entry) {
  const auto [at, is_new] = committed_.try_emplace(entry.step, entry);
  if (!is_new && at->second != entry)
    fail(id, fmt::format("two histories: {}, and {}", text_of_entry(entry), text_of_entry(at->second)));
}

void Checker::stable(Id id, const Log& log, std::size_t from, std::size_t to) {
  for (auto step = from; step < to && failure_.empty(); ++step) {
    if (step >= log.size()) return fail(id, fmt::format("step {} is stable, and missing", step));
    if (step >= stable_.size()) {
      stable_.push_back(log[step]);
    } else if (stable_[step] != log[step] && *stable_[step] != *log[step]) {
      fail(id,
           fmt::format("two stable histories: {}, and {}", text_of_entry(*log[step]), text_of_entry(*stable_[step])));
    }
  }
}

void Checker::recount(Id id, const Log& log) {
  Samples seen;
  for (const auto& entry : log) {
    if ((seen & entry->samples).any()) return fail(id, fmt::format("{} repeats samples", text_of_entry(*entry)));
    seen |= entry->samples;
    if (seen.all()) seen.reset();
  }
}

}  // namespace pliant::membership::sim
