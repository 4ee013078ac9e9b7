// What simulated jobs have gone through: which rows of the step machine's tables were taken, and in which state of its
// step a worker was when a fault hit it. Counted over many seeds, in one process or several.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "step/tables.h"

namespace pliant::sim {

/// What happens to a worker. A fault of the whole job hits all of its workers, one of a link those at its ends.
enum class Fault { kill, term, sigstop, exception, resize, coordinator, agent, cut, store };
inline constexpr std::array<std::string_view, 9> kFaults = {"kill",        "term",  "sigstop", "exception", "resize",
                                                            "coordinator", "agent", "cut",     "store"};
using StepState = step::StepTable::State;

/// Threads and forked processes: any; all that come from one make() count together.
class Coverage {
 public:
  Coverage();
  ~Coverage();
  Coverage(const Coverage&) = delete;
  Coverage& operator=(const Coverage&) = delete;

  void took(std::string_view table, std::size_t row);
  void hit(Fault fault, StepState state);

  /// All counts, and why some cannot be anything but 0.
  std::string text() const;
  /// Rows and pairs that can be but were seen less than `enough` times, or cannot be and were.
  std::vector<std::string> gaps(std::uint64_t enough) const;

 private:
  using Counter = std::atomic<std::uint64_t>;
  std::span<Counter> counters_;  // memory that forked processes share
};

/// Hears one worker's transitions.
class StateWatch final : public step::TransitionWatch {
 public:
  /// `reached` is called, in the middle of things, when the worker's step, or its place among the views, has come into
  /// another state.
  StateWatch(Coverage* coverage, std::function<void()> reached) : coverage_(coverage), reached_(std::move(reached)) {}
  void took(std::string_view table, std::size_t row) override;
  /// Of the step of this worker.
  StepState step() const { return step_; }
  step::ViewTable::State view() const { return view_; }

 private:
  Coverage* const coverage_;  // may be nullptr
  const std::function<void()> reached_;
  StepState step_ = StepState::between;
  step::ViewTable::State view_ = step::ViewTable::outside;
};

}  // namespace pliant::sim
