#include "simulation/growth.h"

#include <algorithm>

namespace pliant::sim {
namespace {

/// Longer than a newcomer that could not be reached is left alone (coordinator.cc).
constexpr Nanos kLongest = seconds(40);
/// So many steps show that the job is not waiting for something else.
constexpr std::uint64_t kSteps = 5;

}  // namespace

void Growth::begin() {
  world_.scheduler().after(milliseconds(500), [this] {
    look();
    begin();
  });
}

void Growth::look() {
  for (auto* process : world_.workers()) {
    if (!is_kept_waiting(*process)) {
      waits_.erase(process->id());
      continue;
    }
    auto& wait = waits_.try_emplace(process->id(), Wait{world_.now(), checker_.steps()}).first->second;
    if (world_.now() - wait.since > kLongest && checker_.steps() > wait.step + kSteps)
      return world_.fail(
          fmt::format("worker {} has waited for {} s to be taken in", process->id(), kLongest / seconds(1)));
  }
}

bool Growth::is_kept_waiting(const Process& process) const {
  auto* coordinator = world_.offices().coordinator();
  if (!process.blank() || process.stopped() || !coordinator) return false;
  const auto& view = coordinator->view();
  if (view.rank_of(process.id()) >= 0 || coordinator->memory().wanted <= view.members.size()) return false;
  return reach_each_other(process.host(), world_.host_name(0)) &&
         std::ranges::all_of(view.members, [&](const auto& member) {
           auto* other = world_.worker(member.id);
           return other && !other->stopped() && reach_each_other(process.host(), member.host);
         });
}

}  // namespace pliant::sim
