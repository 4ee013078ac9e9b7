// State machines that are written down as tables: what may happen in which state, and which state follows. What is not
// in a table cannot happen, and is a bug. docs/step-machine.md shows all tables; a test compares it with the code.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "base/result.h"

namespace pliant::step {

template <class State, class Event>
struct Row {
  State from;
  Event event;
  State to;
};

/// Hears which rows are taken: a simulation counts them. Production has none.
class TransitionWatch {
 public:
  virtual ~TransitionWatch() = default;
  virtual void took(std::string_view table, std::size_t row) = 0;
};

/// A machine that follows `Table`: State and Event, their names (kStates, kEvents), kName and kRows.
template <class Table>
class Machine {
 public:
  using State = typename Table::State;
  using Event = typename Table::Event;

  explicit Machine(State first, TransitionWatch* watch = nullptr) : state_(first), watch_(watch) {}

  State state() const { return state_; }
  bool is(State state) const { return state_ == state; }
  bool is_one_of(std::initializer_list<State> states) const {
    return std::ranges::find(states, state_) != states.end();
  }

  void on(Event event) {
    auto row = std::ranges::find_if(Table::kRows, [&](const auto& r) { return r.from == state_ && r.event == event; });
    if (row == Table::kRows.end()) stop_for_row(event);
    if (watch_) watch_->took(Table::kName, static_cast<std::size_t>(row - Table::kRows.begin()));
    state_ = row->to;
  }

 private:
  [[noreturn]] void stop_for_row(Event event) const {
    auto text =
        fmt::format("the table '{}' has no row for {} in state {}", Table::kName,
                    Table::kEvents[static_cast<std::size_t>(event)], Table::kStates[static_cast<std::size_t>(state_)]);
    stop_for_bug(text.c_str(), __FILE__, __LINE__);
  }

  State state_;
  TransitionWatch* watch_;
};

}  // namespace pliant::step
