#include "apps/pliant/job_news.h"

#include <algorithm>
#include <utility>

#include "apps/pliant/command.h"

namespace pliant::cli {

JobNews::JobNews(std::uint32_t wanted, const std::string& price)
    : account_(price.empty() ? Prices() : parse_prices(price).or_throw()) {
  state_.wanted = wanted;
}

StateNews JobNews::on_state(Nanos now, const wire::JobState& state) {
  const auto before = std::exchange(state_, state).view;
  account_.on_state(seconds(now), state);
  if (std::pair(state.view.epoch, state.view.term) <= std::pair(before.epoch, before.term)) return StateNews::nothing;
  if (before.epoch == 0) return state.view.epoch > 0 ? StateNews::first : StateNews::nothing;
  return state.view.restarts > before.restarts ? StateNews::again : StateNews::newer;
}

void JobNews::on_progress(Nanos now, const wire::Progress& progress) {
  progress_ = progress;
  pace_.on_progress(now, progress);
  account_.on_progress(seconds(now), progress);
}

bool JobNews::in_view(std::uint64_t id) const {
  return std::ranges::any_of(state_.view.members, [&](const auto& member) { return member.id == id; });
}

std::string JobNews::reason() const { return over_ ? printable(over_->reason) : std::string(); }

void JobNews::describe(Snapshot& snapshot, Nanos now, bool runs) const {
  snapshot.workers = static_cast<int>(state_.wanted);
  snapshot.begun = has_begun();
  snapshot.progress = progress_;
  if (runs) snapshot.seconds_left = pace_.seconds_left(now);
  snapshot.bill = account_.lines(seconds(now));
}

}  // namespace pliant::cli
