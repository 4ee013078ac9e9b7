// The tables themselves: what docs/step-machine.md says of them, and that they make sense.
#include "step/tables.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace pliant::step {
namespace {

std::vector<std::string> rows_in_docs(std::string_view table) {
  std::ifstream page(PLIANT_SOURCE_DIR "/docs/step-machine.md");
  EXPECT_TRUE(page);
  std::vector<std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) inside = line.substr(3) == table;
    if (inside && line.starts_with("| ") && !line.starts_with("| state |")) rows.push_back(line);
  }
  return rows;
}

template <class Table>
std::vector<std::string> rows_in_code() {
  std::vector<std::string> rows;
  for (const auto& row : Table::kRows)
    rows.push_back("| " + std::string(Table::kStates[static_cast<std::size_t>(row.from)]) + " | " +
                   std::string(Table::kEvents[static_cast<std::size_t>(row.event)]) + " | " +
                   std::string(Table::kStates[static_cast<std::size_t>(row.to)]) + " |");
  return rows;
}

template <class Table>
class Tables : public testing::Test {};
using All = testing::Types<StepTable, ViewTable, ReductionTable, ReplicaTable, LoopTable>;
TYPED_TEST_SUITE(Tables, All);

TYPED_TEST(Tables, AreWhatTheDocsSay) { EXPECT_EQ(rows_in_code<TypeParam>(), rows_in_docs(TypeParam::kName)); }

TYPED_TEST(Tables, SayOneThingOfEachCase) {
  std::set<std::pair<int, int>> seen;
  for (const auto& row : TypeParam::kRows)
    EXPECT_TRUE(seen.emplace(static_cast<int>(row.from), static_cast<int>(row.event)).second);
}

TYPED_TEST(Tables, UseEveryStateAndEvent) {
  std::set<std::size_t> states, events;
  for (const auto& row : TypeParam::kRows) {
    states.insert(static_cast<std::size_t>(row.from));
    states.insert(static_cast<std::size_t>(row.to));
    events.insert(static_cast<std::size_t>(row.event));
  }
  EXPECT_EQ(states.size(), TypeParam::kStates.size());
  EXPECT_EQ(events.size(), TypeParam::kEvents.size());
}

TEST(Machine, FollowsItsTableAndTellsWhoWatches) {
  struct Watch final : TransitionWatch {
    std::vector<std::size_t> rows;
    void took(std::string_view table, std::size_t row) override {
      EXPECT_EQ(table, "step");
      rows.push_back(row);
    }
  } watch;
  Machine<StepTable> machine(StepTable::between, &watch);
  machine.on(StepTable::begin);
  machine.on(StepTable::close);
  EXPECT_TRUE(machine.is(StepTable::exchanging));
  EXPECT_TRUE(machine.is_one_of({StepTable::closed, StepTable::exchanging}));
  EXPECT_EQ(watch.rows, (std::vector<std::size_t>{0, 1}));
}

TEST(MachineDeathTest, WhatIsNotInTheTableIsABug) {
  Machine<StepTable> machine(StepTable::between);
  EXPECT_DEATH(machine.on(StepTable::confirmed), "'step' has no row for confirmed in state between");
}

}  // namespace
}  // namespace pliant::step
