#include "simulation/checker.h"

#include <fmt/format.h>

#include <utility>

namespace pliant::sim {

void Checker::begins(Process& process, const Moment& moment, std::span<const double> counts) {
  auto [lineage, loop, step, epoch, phase] = moment;
  auto digest = combine(digest_bytes(counts.data(), counts.size_bytes()), digest_bytes(&phase, sizeof phase));
  State now{digest, epoch, process.id()};
  auto [known, first] = states_.emplace(std::array{lineage, loop, step}, now);
  progress_[process.id()] = step;
  process.note_blank(false);
  if (lineage >= lineage_) newest_ = lineage > std::exchange(lineage_, lineage) ? step : std::max(newest_, step);
  world_.note(process, "begins step {} of epoch {} in loop {} of lineage {}, state {:08x}", step, epoch, loop, lineage,
              now.digest >> 32);
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

void Checker::named(const session::Checkpoint& checkpoint) {
  const auto& then = checkpoint.position;
  auto known = states_.find({then.lineage, then.loop, then.step});
  if (known == states_.end()) return;  // the last of a loop
  auto digest_of = [&](const char* name) {
    const auto& bytes = checkpoint.tensors.at(name).data;
    return digest_bytes(bytes.data(), bytes.size());
  };
  if (combine(digest_of("counts/values"), digest_of("phase/values")) != known->second.digest)
    world_.fail(fmt::format("the checkpoint of step {} is of another state than that of worker {}", then.step,
                            known->second.by));
}

void Checker::agrees(Process& process, std::uint64_t lineage, const std::string& key, double value) {
  auto [known, first] = values_.emplace(fmt::format("{}/{}", lineage, key), Value{value, process.id()});
  if (known->second.value != value)
    world_.fail(fmt::format("worker {} has {} for reduction {}, worker {} has {}", process.id(), value, key,
                            known->second.by, known->second.value));
}

void Checker::objects(Process& process, const std::string& what) {
  world_.fail(fmt::format("worker {}: {}", process.id(), what));
}

bool Checker::shall_throw(Process& process, bool all) {
  if (!all && (any_threw_ || !world_.may_die(process))) return false;
  any_threw_ = true;
  left_.insert(process.id());
  return true;
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
        process->agreed_view() == newest_view)
      ids.insert(id);
  }
  return ids;
}

}  // namespace pliant::sim
