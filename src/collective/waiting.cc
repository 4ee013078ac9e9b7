// The engine's second part: bells, those who wait for them, and the thread that works while nobody waits.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/fault.h"
#include "collective/diagnosis.h"
#include "collective/engine.h"
#include "net/futex.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

std::atomic<std::uint64_t> Channel::*counter_of(Counter counter) {
  switch (counter) {
    case Counter::submitted:
      return &Channel::submitted;
    case Counter::reduced:
      return &Channel::reduced;
    case Counter::copied:
      break;
  }
  return &Channel::copied;
}

}  // namespace

// ---- bells ----

void Engine::ring() {
  control_->bell.fetch_add(1, std::memory_order_seq_cst);
  for (const auto* control : controls_) {
    // A view that is fenced while it forms has peers that never came.
    if (!control || control->sleepers.load(std::memory_order_seq_cst) == 0) continue;
    net::futex_wake(&control_->bell);
    return;
  }
}

bool Engine::publish(LocalChannel& channel, Counter which, std::uint64_t value, std::uint64_t use) {
  auto counter = counter_of(which);
  (channel.own->*counter).store(value, std::memory_order_seq_cst);
  if (bridge_) {
    auto slot = use % 2;
    // Once it is submitted, others may reduce it, and write down what they measure.
    bool submits = which == Counter::submitted;
    auto number = submits ? channel.own->weight[slot] : channel.own->measured[slot].squares;
    auto spread = submits ? 0 : channel.own->measured[slot].spread;
    bridge_->publish(channel.index, which, value, static_cast<int>(slot), number, spread);
  } else if (channel.agreed.load(std::memory_order_acquire)) {
    for (const auto* peer : channel.peers)
      if ((peer->*counter).load(std::memory_order_seq_cst) < value) return false;
  }
  ring();
  return true;
}

void Engine::nudge() {
  ring();
  background_.wake();
}

// ---- waiting ----

template <class Done>
void Engine::sleep(const Done& done) {
  std::vector<net::FutexWord> words;
  words.reserve(controls_.size() + 1);
  control_->sleepers.fetch_add(1, std::memory_order_seq_cst);
  for (const auto* control : controls_)
    words.push_back({&control->bell, control->bell.load(std::memory_order_seq_cst)});
  // Bells are read before this last look, so what comes after it wakes us.
  if (!try_progress(1, true) && !done()) net::futex_wait_any(words, options_.nap);
  control_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

template <class Done>
Status Engine::wait_until(const Done& done, std::uint32_t blocked_on) {
  if (done()) return {};
  helpers_.fetch_add(1, std::memory_order_seq_cst);
  Status status;
  {
    Waiter waiter(crowding_);
    std::optional<Diagnosis> diagnosis;
    while (!done()) {
      if (blocked_on == kBlockedOnRows) {
        if (fenced()) {
          status = complaint_of_others().value_or(fence_.reason());
          break;
        }
        if (int rank = departures_.first_of([this](int gone) { return rows_.lacks(gone); }); rank >= 0) {
          status = complaint_of_others().value_or(departure(rank));
          break;
        }
      }
      if (try_progress(1)) {
        waiter.progressed();
        continue;
      }
      if (waiter.pause()) continue;
      if (!diagnosis) {
        diagnosis.emplace(*this);
        control_->blocked_on.store(blocked_on, std::memory_order_release);
        control_->blocked_turns.fetch_add(1, std::memory_order_release);
        if (bridge_) bridge_->publish_state(*control_);
      }
      sleep(done);
      if (auto problem = diagnosis->look(blocked_on)) {
        complain(*problem);
        fence(*problem);
      }
    }
    if (diagnosis) {
      control_->blocked_on.store(0, std::memory_order_release);
      control_->blocked_turns.fetch_add(1, std::memory_order_release);
      if (bridge_) bridge_->publish_state(*control_);
    }
  }
  helpers_.fetch_sub(1, std::memory_order_seq_cst);
  if (in_flight_.load(std::memory_order_relaxed) > 0) background_.wake();
  return status;
}

Status Engine::wait(const Work& work) {
  if (work.channel_)
    PLIANT_TRY(wait_until([&] { return work.state() != Work::State::pending; }, work.channel_->index + 1));
  if (work.state() == Work::State::failed) return work.error();
  return {};
}

// ---- rows ----

Result<std::vector<std::string>> Engine::exchange(std::string_view row) {
  if (row.size() > kRowBytes) return Error{Code::invalid, fmt::format("a row of more than {} bytes", kRowBytes)};
  std::lock_guard lock(rows_.mutex());
  if (bridge_ && !fenced() && rows_.is_open()) return Error{Code::peer_lost, "the exchange before this one has failed"};
  PLIANT_TRY(fence_.publish_unless_up([&] {
    rows_.publish(row);
    if (bridge_) bridge_->publish_row(rows_.number(), row);
  }));
  fault::point("row_published");
  if (rows_.complete()) ring();
  int seen = 0;
  PLIANT_TRY(wait_until(
      [&] {
        while (seen < team_.size() && !rows_.lacks(seen)) ++seen;
        return seen == team_.size();
      },
      kBlockedOnRows));
  return rows_.take();
}

Status Engine::confirm() {
  if (!bridge_) {
    if (!any_fenced()) return {};
    return fenced() ? fence_.reason() : Error{Code::peer_lost, "another worker has ended the view"};
  }
  std::lock_guard lock(rows_.mutex());
  if (!fenced() && !rows_.all_confirmed()) return Error{Code::peer_lost, "the confirmation before this one has failed"};
  PLIANT_TRY(fence_.publish_unless_up([&] {
    rows_.confirm();
    bridge_->publish_state(*control_);
  }));
  ring();
  return wait_until([&] { return rows_.all_confirmed(); }, kBlockedOnRows);
}

// ---- the thread ----

void Engine::work_in_background() {
  auto bell = background_.listen();
  bool ours = background_.take_over([this] {
    return in_flight_.load(std::memory_order_seq_cst) > 0 && helpers_.load(std::memory_order_seq_cst) == 0;
  });
  if (ours && try_progress(0)) return;
  background_.sleep([&] {
    if (!ours) return net::futex_wait_any({&bell, 1}, 10 * options_.nap);
    std::vector<net::FutexWord> words{bell};
    control_->sleepers.fetch_add(1, std::memory_order_seq_cst);
    for (const auto* control : controls_)
      words.push_back({&control->bell, control->bell.load(std::memory_order_seq_cst)});
    if (!try_progress(0, true)) net::futex_wait_any(words, options_.nap);
    control_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
  });
}

}  // namespace pliant::collective
