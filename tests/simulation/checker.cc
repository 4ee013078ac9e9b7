#include "simulation/checker.h"

#include <fmt/format.h>

namespace pliant::sim {

void Checker::begins(Process& process, std::uint64_t step, std::uint64_t epoch, std::span<const double> counts) {
  State now{digest_bytes(counts.data(), counts.size_bytes()), epoch, process.id()};
  auto [known, first] = states_.emplace(step, now);
  progress_[process.id()] = step;
  process.note_blank(false);
  newest_ = std::max(newest_, step);
  world_.note(process, "begins step {} of epoch {}, state {:08x}", step, epoch, now.digest >> 32);
  if (known->second.digest != now.digest || known->second.epoch != epoch)
    return world_.fail(fmt::format("worker {} begins step {} (epoch {}) with another state than worker {} (epoch {})",
                                   process.id(), step, epoch, known->second.by, known->second.epoch));
  if (!first) return;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    auto uses = counts[i];
    if (uses != static_cast<double>(epoch) && uses != static_cast<double>(epoch + 1))
      return world_.fail(fmt::format("before step {} of epoch {} sample {} was used {} times (worker {})", step, epoch,
                                     i % samples_, uses, process.id()));
  }
}

void Checker::finished(Process& process, std::span<const double> counts) {
  any_finished_ = true;
  left_.insert(process.id());
  world_.note(process, "has finished");
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] != static_cast<double>(epochs_))
      return world_.fail(fmt::format("at the end of worker {} sample {} was used {} times in {} epochs", process.id(),
                                     i % samples_, counts[i], epochs_));
}

std::set<std::uint64_t> Checker::holders() const {
  std::set<std::uint64_t> ids;
  auto newest_view = world_.newest_view();
  for (const auto& [id, step] : progress_) {
    auto* process = world_.worker(id);
    if (process && !process->blank() && !left_.contains(id) && step + 1 >= newest_ &&
        process->last_view() == newest_view)
      ids.insert(id);
  }
  return ids;
}

}  // namespace pliant::sim
