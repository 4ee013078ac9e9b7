// ViewRule: who was a member when, and who may contribute.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "record/rules.h"

namespace pliant::record {
namespace {

constexpr std::size_t kViewsRemembered = 8;

}  // namespace

void ViewRule::see(const StepLines& lines, const StepRecord& step) {
  if (!begun_ || step.lineage != lineage_) {
    begun_ = false;
    lineage_ = step.lineage;
    last_view_ = 0;
    now_ = {};
    dealt_.clear();
  }
  bool usable = enter(step);
  if (step.version > 1) check_lease(step);
  if (usable && step.version > 1) learn_members(step);
  for (const auto& line : lines)
    if (usable && line.record().view == now_.number) seat(line.record());
  if (usable) check_room(step);
  if (usable) check_contributors(step);
  last_view_ = step.view;
}

/// Makes the step's view the current one. False if that cannot be.
bool ViewRule::enter(const StepRecord& step) {
  if (begun_ && step.view < now_.number) {
    faults_.add(fmt::format("{}: view {} after view {}", name_of(step), step.view, now_.number));
    return false;
  }
  if (!begun_ || step.view > now_.number) {
    before_ = std::move(now_);
    now_ = {step.view, step.view_hash, step.size, step.step, {}, {}, {}, {}};
    begun_ = true;
    ++views_;
    if (step.size < 1) faults_.add(fmt::format("{}: view {} has no members", name_of(step), step.view));
  }
  if (step.view_hash != now_.hash)
    faults_.add(fmt::format("{}: view {} has the hash {:016x}, before it was {:016x}", name_of(step), step.view,
                            step.view_hash, now_.hash));
  if (step.size != now_.size)
    faults_.add(
        fmt::format("{}: view {} has {} members, before it had {}", name_of(step), step.view, step.size, now_.size));
  return true;
}

void ViewRule::check_lease(const StepRecord& step) {
  const auto& lease = step.lease;
  if (lease.view > step.view || lease.view < last_view_)
    faults_.add(
        fmt::format("{}: samples were dealt among view {}, but the step was closed in view {} and the one before "
                    "in view {}",
                    name_of(step), lease.view, step.view, last_view_));
  if (lease.view == step.view && static_cast<int>(lease.workers.size()) != step.size)
    faults_.add(fmt::format("{}: samples were dealt to {} workers of another view {} ({:016x})", name_of(step),
                            lease.workers.size(), lease.view, lease.hash));
  auto [known, first] = dealt_.try_emplace(lease.view, lease);
  if (!first && known->second != lease)
    faults_.add(fmt::format("{}: view {} ({:016x}) has workers {}, before it had workers {} ({:016x})", name_of(step),
                            lease.view, lease.hash, fmt::join(lease.workers, " "),
                            fmt::join(known->second.workers, " "), known->second.hash));
  if (dealt_.size() > kViewsRemembered) dealt_.erase(dealt_.begin());
}

/// Samples are dealt to all members of a view.
void ViewRule::learn_members(const StepRecord& step) {
  if (step.lease.view != now_.number || !now_.members.empty()) return;
  now_.members.insert(step.lease.workers.begin(), step.lease.workers.end());
  for (auto worker : now_.believed)
    if (!now_.members.contains(worker))
      faults_.add(
          fmt::format("{}: worker {} contributed to view {} but is not a member", name_of(step), worker, now_.number));
  now_.believed.clear();
}

/// Gives the worker its rank, or finds that it cannot have it.
void ViewRule::seat(const StepRecord& line) {
  auto rank_in_words = fmt::format("{}: worker {} has rank {}", name_of(line), line.worker, line.rank);
  if (line.rank >= now_.size) {
    faults_.add(fmt::format("{} in view {} of {} members", rank_in_words, line.view, now_.size));
    return;
  }
  if (line.lease.view == line.view && line.version > 1 &&
      static_cast<std::size_t>(line.rank) < line.lease.workers.size() &&
      line.lease.workers[static_cast<std::size_t>(line.rank)] != line.worker) {
    faults_.add(fmt::format("{} of view {}, which is worker {}'s", rank_in_words, line.view,
                            line.lease.workers[static_cast<std::size_t>(line.rank)]));
    return;
  }
  auto known = now_.ranks.find(line.worker);
  if (known != now_.ranks.end()) {
    if (known->second != line.rank)
      faults_.add(
          fmt::format("{}, before it had rank {} of the same view {}", rank_in_words, known->second, line.view));
    return;
  }
  auto [seat, free] = now_.workers.emplace(line.rank, line.worker);
  if (!free) {
    faults_.add(fmt::format("{} of view {}, which is worker {}'s", rank_in_words, line.view, seat->second));
    return;
  }
  now_.ranks.emplace(line.worker, line.rank);
  now_.believed.erase(line.worker);
}

/// Those who were believed to be members are not if others have filled the view.
void ViewRule::check_room(const StepRecord& step) {
  if (now_.known() <= static_cast<std::size_t>(std::max(now_.size, 0))) return;
  for (auto worker : now_.believed)
    faults_.add(
        fmt::format("{}: worker {} contributed to view {} but is not a member", name_of(step), worker, now_.number));
  now_.believed.clear();
}

/// Whether the worker is, or may be, a member.
bool ViewRule::believe(std::uint64_t worker) {
  if (now_.knows(worker)) return true;
  if (!now_.has_room()) return false;
  now_.believed.insert(worker);
  return true;
}

void ViewRule::check_contributors(const StepRecord& step) {
  for (const auto& part : step.samples) {
    if (step.version == 1) {
      check_old_contributor(step, part);
    } else if (std::ranges::find(step.lease.workers, part.worker) == step.lease.workers.end()) {
      faults_.add(fmt::format("{}: worker {} contributed but was dealt no samples (view {})", name_of(step),
                              part.worker, step.lease.view));
    } else if (part.by) {
      check_salvage(step, part);
    } else if (!step.delivered && !believe(part.worker)) {
      faults_.add(fmt::format("{}: worker {} contributed but is not a member of view {}", name_of(step), part.worker,
                              now_.number));
    }
  }
}

/// A dead worker's gradients count if a member of the step's view added them to its own.
void ViewRule::check_salvage(const StepRecord& step, const Contribution& part) {
  if (now_.ranks.contains(part.worker) || now_.members.contains(part.worker))
    faults_.add(fmt::format("{}: worker {} is a member of view {}, but its samples count as salvaged by worker {}",
                            name_of(step), part.worker, now_.number, *part.by));
  if (!believe(*part.by))
    faults_.add(fmt::format("{}: worker {} salvaged the samples of worker {} but is not a member of view {}",
                            name_of(step), *part.by, part.worker, now_.number));
}

/// Lines of version 1 do not tell who was salvaged: the first step of a view may have been settled after a death in the
/// view before, and then hold samples of that view's members; if views in between left no record, anybody is believed.
void ViewRule::check_old_contributor(const StepRecord& step, const Contribution& part) {
  if (now_.knows(part.worker)) return;
  bool first = step.step == now_.first_step;
  if (first && (before_.knows(part.worker) || now_.number > before_.number + 1)) return;
  if (!believe(part.worker))
    faults_.add(fmt::format("{}: worker {} contributed but is not a member of view {}", name_of(step), part.worker,
                            now_.number));
}

}  // namespace pliant::record
