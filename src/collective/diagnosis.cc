#include "collective/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/log.h"

namespace pliant::collective {
namespace {

constexpr std::uint32_t kRows = UINT32_MAX;

const Channel* find_by_name(const Control& control, std::string_view name, std::uint64_t use) {
  return PeerDirectory(&control).find(std::string(name), use);
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

Diagnosis::Diagnosis(Engine& engine)
    : engine_(engine),
      began_(engine.clock_.now()),
      report_at_(began_ + engine.options_.stall_notice),
      still_since_(began_) {}

std::optional<Error> Diagnosis::mismatch_of(const Work& work) {
  const auto& own = *work.channel_->own;
  std::vector<std::string> others;
  std::vector<int> same{engine_.team_.rank};
  for (int rank = 0; rank < engine_.team_.size(); ++rank) {
    if (rank == engine_.team_.rank || !engine_.controls_[rank]) continue;
    const auto* theirs = engine_.directories_[rank].find(work.channel_->name, work.use_);
    auto match = compare(own, work.use_, theirs);
    if (match == Match::agreed) same.push_back(rank);
    if (match == Match::mismatch) others.push_back(fmt::format("{} on rank {}", describe(*theirs), rank));
  }
  if (others.empty()) return std::nullopt;
  std::sort(same.begin(), same.end());
  return Error{Code::mismatch, fmt::format("reduction '{}' is {} on {}, but {}", work.channel_->name, describe(own),
                                           ranks_text(same), fmt::join(others, ", "))};
}

std::vector<Diagnosis::Blocked> Diagnosis::snapshot() const {
  std::vector<Blocked> blocked;
  for (const auto* control : engine_.controls_)
    blocked.push_back(
        {control->blocked_on.load(std::memory_order_acquire), control->blocked_turns.load(std::memory_order_acquire)});
  return blocked;
}

std::string Diagnosis::name_on(int rank, std::uint32_t on) const {
  if (on == kRows) return "the step's summary";
  if (on == 0 || on > kMaxChannels) return "nothing";
  return fmt::format("'{}'", engine_.controls_[rank]->channel[on - 1].name_text());
}

std::vector<int> Diagnosis::awaited_by(int rank, std::uint32_t on) const {
  std::vector<int> missing;
  const auto& control = *engine_.controls_[rank];
  for (int other = 0; other < engine_.team_.size(); ++other) {
    if (other == rank) continue;
    const auto& peer = *engine_.controls_[other];
    if (on == kRows) {
      if (peer.rows.load(std::memory_order_acquire) < control.rows.load(std::memory_order_acquire))
        missing.push_back(other);
      continue;
    }
    if (on > kMaxChannels) continue;
    const auto& channel = control.channel[on - 1];
    auto submitted = channel.submitted.load(std::memory_order_acquire);
    auto use = channel.first_use + (submitted ? (submitted - 1) / std::max<std::uint64_t>(channel.chunks, 1) : 0);
    const auto* theirs = find_by_name(peer, channel.name_text(), use);
    if (!theirs || theirs->submitted.load(std::memory_order_acquire) < submitted) missing.push_back(other);
  }
  return missing;
}

/// Everybody who is (indirectly) waited for waits himself: nobody will ever move. Lists who waits for what.
std::optional<Error> Diagnosis::circle(const std::vector<Blocked>& blocked) const {
  std::set<int> reached;
  std::vector<int> open{engine_.team_.rank};
  std::vector<std::string> waits;
  while (!open.empty()) {
    int rank = open.back();
    open.pop_back();
    if (!reached.insert(rank).second) continue;
    if (blocked[rank].on == 0) return std::nullopt;
    auto missing = awaited_by(rank, blocked[rank].on);
    if (missing.empty()) return std::nullopt;  // it has all it needs and will move
    waits.push_back(fmt::format("rank {} waits for {}, which {} did not submit", rank, name_on(rank, blocked[rank].on),
                                ranks_text(missing)));
    open.insert(open.end(), missing.begin(), missing.end());
  }
  std::sort(waits.begin(), waits.end());
  return Error{Code::mismatch, fmt::format("ranks wait for different things: {}", fmt::join(waits, "; "))};
}

void Diagnosis::report_stall(std::uint32_t blocked_on, Nanos waited) const {
  auto missing = awaited_by(engine_.team_.rank, blocked_on);
  if (missing.empty()) return;
  std::vector<std::string> others;
  for (int rank : missing) {
    const auto& control = *engine_.controls_[rank];
    auto on = control.blocked_on.load(std::memory_order_acquire);
    others.push_back(fmt::format("rank {} ({})", rank,
                                 on ? "itself waiting for " + name_on(rank, on) : std::string("busy or stopped")));
  }
  log::warn("stalled for {:.0f} s: {} is not submitted by {}", seconds(waited), name_on(engine_.team_.rank, blocked_on),
            fmt::join(others, ", "));
}

std::optional<Error> Diagnosis::look(std::uint32_t blocked_on) {
  if (engine_.fenced()) return std::nullopt;
  {
    std::unique_lock lock(engine_.work_mutex_, std::try_to_lock);
    if (lock)
      for (const auto& work : engine_.active_)
        if (auto mismatch = mismatch_of(*work)) return mismatch;
  }
  if (auto complaint = engine_.complaint_of_others()) return complaint;
  auto now = engine_.clock_.now();
  auto blocked = snapshot();
  if (blocked != last_) {
    last_ = std::move(blocked);
    still_since_ = now;
  } else if (now - still_since_ >= engine_.options_.deadlock_notice) {
    if (auto problem = circle(last_)) return problem;
    still_since_ = now;
  }
  if (now >= report_at_) {
    report_stall(blocked_on, now - began_);
    report_at_ = now + (now - began_);
  }
  return std::nullopt;
}

}  // namespace pliant::collective
