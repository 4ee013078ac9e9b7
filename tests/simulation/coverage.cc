#include "simulation/coverage.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace pliant::sim {
namespace {

using step::StepTable;

/// A table's rows in words, and where its counters begin.
struct Table {
  std::string_view name;
  std::size_t first = 0;
  std::vector<std::string> rows{};
};

template <class T>
Table describe(std::size_t first) {
  Table table{T::kName, first};
  for (const auto& row : T::kRows)
    table.rows.push_back(fmt::format("{:10} {:17} {}", T::kStates[static_cast<std::size_t>(row.from)],
                                     T::kEvents[static_cast<std::size_t>(row.event)],
                                     T::kStates[static_cast<std::size_t>(row.to)]));
  return table;
}

const std::vector<Table>& tables() {
  static const auto all = [] {
    std::vector<Table> made;
    std::size_t first = 0;
    auto add = [&](Table table) {
      first += table.rows.size();
      made.push_back(std::move(table));
    };
    add(describe<StepTable>(first));
    add(describe<step::ViewTable>(first));
    add(describe<step::ReductionTable>(first));
    add(describe<step::ReplicaTable>(first));
    add(describe<step::LoopTable>(first));
    return made;
  }();
  return all;
}

std::size_t rows_in_all() { return tables().back().first + tables().back().rows.size(); }

std::size_t place_of(Fault fault, StepState state) {
  return rows_in_all() + static_cast<std::size_t>(fault) * StepTable::kStates.size() + static_cast<std::size_t>(state);
}

/// Faults that cannot hit a worker in a state of its step.
struct NoPair {
  Fault fault;
  StepState state;
  std::string_view why;
};
constexpr NoPair kNoPairs[] = {
    {Fault::exception, StepTable::between, "a program throws in the body of its loop"},
    {Fault::exception, StepTable::exchanging, "the session's own code runs"},
    {Fault::exception, StepTable::reducing, "the session's own code runs"},
    {Fault::exception, StepTable::confirming, "the session's own code runs"},
    {Fault::exception, StepTable::held, "the session's own code runs"},
    {Fault::exception, StepTable::lacking, "the session's own code runs"},
};

std::string_view reason_for(Fault fault, StepState state) {
  auto none =
      std::ranges::find_if(kNoPairs, [&](const NoPair& pair) { return pair.fault == fault && pair.state == state; });
  return none == std::end(kNoPairs) ? std::string_view() : none->why;
}

std::string name_of(Fault fault, StepState state) {
  return fmt::format("{} in {}", kFaults[static_cast<std::size_t>(fault)],
                     StepTable::kStates[static_cast<std::size_t>(state)]);
}

template <class Action>
void for_each_pair(const Action& action) {
  for (std::size_t fault = 0; fault < kFaults.size(); ++fault)
    for (std::size_t state = 0; state < StepTable::kStates.size(); ++state)
      action(static_cast<Fault>(fault), static_cast<StepState>(state));
}

}  // namespace

Coverage::Coverage() {
  auto count = rows_in_all() + kFaults.size() * StepTable::kStates.size();
  auto* memory = mmap(nullptr, count * sizeof(Counter), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* counters = static_cast<Counter*>(memory);
  std::uninitialized_value_construct_n(counters, count);
  counters_ = {counters, count};
}

Coverage::~Coverage() { munmap(counters_.data(), counters_.size_bytes()); }

void Coverage::took(std::string_view table, std::size_t row) {
  auto at = std::ranges::find(tables(), table, &Table::name);
  counters_[at->first + row].fetch_add(1, std::memory_order_relaxed);
}

void Coverage::hit(Fault fault, StepState state) {
  counters_[place_of(fault, state)].fetch_add(1, std::memory_order_relaxed);
}

std::string Coverage::text() const {
  std::string text = "rows of tables:\n";
  for (const auto& table : tables())
    for (std::size_t row = 0; row < table.rows.size(); ++row)
      text += fmt::format("{:10} {:40} {:10}\n", table.name, table.rows[row], counters_[table.first + row].load());
  text += fmt::format("\nfaults, by the state of the step of whoever they hit:\n{:12}", "");
  for (auto state : StepTable::kStates) text += fmt::format("{:>12}", state);
  for_each_pair([&](Fault fault, StepState state) {
    if (state == StepTable::between) text += fmt::format("\n{:12}", kFaults[static_cast<std::size_t>(fault)]);
    bool cannot_be = !reason_for(fault, state).empty();
    auto count = counters_[place_of(fault, state)].load();
    text += fmt::format("{:>12}", cannot_be && !count ? "-" : std::to_string(count));
  });
  text += "\n";
  for_each_pair([&](Fault fault, StepState state) {
    if (auto why = reason_for(fault, state); !why.empty())
      text += fmt::format("cannot be: {}: {}\n", name_of(fault, state), why);
  });
  return text;
}

std::vector<std::string> Coverage::gaps(std::uint64_t enough) const {
  std::vector<std::string> gaps;
  for (const auto& table : tables())
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
      auto count = counters_[table.first + row].load();
      if (count < enough) gaps.push_back(fmt::format("taken {} times: {} {}", count, table.name, table.rows[row]));
    }
  for_each_pair([&](Fault fault, StepState state) {
    auto count = counters_[place_of(fault, state)].load();
    bool can_be = reason_for(fault, state).empty();
    if (can_be && count < enough) gaps.push_back(fmt::format("seen {} times: {}", count, name_of(fault, state)));
    if (!can_be && count > 0) gaps.push_back(fmt::format("cannot be, but was seen: {}", name_of(fault, state)));
  });
  return gaps;
}

void StateWatch::took(std::string_view table, std::size_t row) {
  if (coverage_) coverage_->took(table, row);
  if (table == StepTable::kName)
    step_ = StepTable::kRows[row].to;
  else if (table == step::ViewTable::kName)
    view_ = step::ViewTable::kRows[row].to;
  else
    return;
  reached_();
}

}  // namespace pliant::sim
