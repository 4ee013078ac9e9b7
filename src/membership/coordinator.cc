#include "membership/coordinator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/system.h"

namespace pliant::membership {

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)), seats_(static_cast<std::size_t>(options_.workers)) {}

std::string Coordinator::objection_to(const wire::Join& join) const {
  if (join.job != options_.job) return fmt::format("this is job '{}', not '{}'", options_.job, join.job);
  if (join.id >= seats_.size())
    return fmt::format("worker {} is not expected: the job has {} workers", join.id, seats_.size());
  if (seats_[join.id].taken || running_) return fmt::format("worker {} has joined already", join.id);
  for (const auto& seat : seats_) {
    if (!seat.taken) continue;
    if (seat.join.build != join.build)
      return fmt::format("worker {} was built as '{}', worker {} as '{}'", join.id, join.build, seat.join.id,
                         seat.join.build);
    if (seat.join.cpu_level != join.cpu_level)
      return fmt::format("worker {} runs at CPU level {}, worker {} at {}: their sums would differ", join.id,
                         join.cpu_level, seat.join.id, seat.join.cpu_level);
  }
  return {};
}

std::vector<Outgoing> Coordinator::on_join(Link link, const wire::Join& join) {
  if (auto reason = objection_to(join); !reason.empty()) return {{link, wire::Refusal{reason}}};
  seats_[join.id] = Seat{true, link, join};
  if (!missing().empty()) return {};

  running_ = true;
  view_ = View{1, 1, options_.seed, 1, {}};
  for (const auto& seat : seats_) view_.members.push_back({seat.join.id, seat.join.pid, seat.join.address});
  std::vector<Outgoing> out;
  for (const auto& seat : seats_) out.push_back({seat.link, notice_of(view_)});
  return out;
}

void Coordinator::on_closed(Link link) {
  if (running_) return;
  for (auto& seat : seats_)
    if (seat.taken && seat.link == link) seat = Seat{};
}

std::vector<std::uint64_t> Coordinator::missing() const {
  std::vector<std::uint64_t> ids;
  for (std::size_t id = 0; id < seats_.size(); ++id)
    if (!seats_[id].taken) ids.push_back(id);
  return ids;
}

}  // namespace pliant::membership
