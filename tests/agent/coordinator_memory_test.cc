#include "agent/coordinator_memory.h"

#include <gtest/gtest.h>

namespace pliant::agent {
namespace {

membership::Memory example() {
  membership::Memory memory;
  memory.view.term = 3;
  memory.view.epoch = 7;
  memory.view.seed = 42;
  memory.view.planned = 5;
  memory.view.members = {{0, 100, "@w0", "a", "10.0.0.1:1"}, {2, 102, "@w2", "b", "10.0.0.2:1"}};
  memory.view.newcomers = {2};
  memory.view.restarts = 1;
  memory.view.resume_step = 60;
  memory.wanted = 4;
  memory.spare = 1;
  memory.next_id = 9;
  memory.restarts = -2;
  memory.stopping = wire::Stopping::at_once;
  memory.outcomes = {{0, Outcome::finished}, {1, Outcome::stopped}};
  memory.ended = {{1, 8}, {5, 0}};
  memory.invited = {{3, "b"}, {4, ""}};
  memory.hosts = {"", "a", "b"};
  memory.said = wire::Over{2, "all is lost"};
  return memory;
}

TEST(CoordinatorMemory, ComesBackFromItsText) {
  auto memory = memory_from(memory_text(example()));
  ASSERT_TRUE(memory);
  EXPECT_TRUE(*memory == example());
  EXPECT_EQ(memory->invited, example().invited);
  EXPECT_EQ(memory->hosts, example().hosts);
  EXPECT_EQ(memory->outcomes, example().outcomes);
  EXPECT_EQ(memory->ended, example().ended);
}

TEST(CoordinatorMemory, EveryPartOfItCounts) {
  auto other = [](auto change) {
    auto memory = example();
    change(memory);
    return memory;
  };
  EXPECT_FALSE(example() == other([](auto& memory) { ++memory.view.epoch; }));
  EXPECT_FALSE(example() == other([](auto& memory) { ++memory.wanted; }));
  EXPECT_FALSE(example() == other([](auto& memory) { ++memory.next_id; }));
  EXPECT_FALSE(example() == other([](auto& memory) { ++memory.restarts; }));
  EXPECT_FALSE(example() == other([](auto& memory) { memory.stopping = wire::Stopping::in_order; }));
  EXPECT_FALSE(example() == other([](auto& memory) { memory.outcomes.erase(0); }));
  EXPECT_FALSE(example() == other([](auto& memory) { memory.ended[1] = 9; }));
  EXPECT_FALSE(example() == other([](auto& memory) { memory.invited[3] = "a"; }));
  EXPECT_FALSE(example() == other([](auto& memory) { memory.hosts.erase("b"); }));
  EXPECT_FALSE(example() == other([](auto& memory) { memory.said.reset(); }));
}

TEST(CoordinatorMemory, WhatIsNoneIsNothing) {
  auto text = memory_text(example());
  for (std::size_t length = 0; length + 2 < text.size(); length += 7)
    EXPECT_FALSE(memory_from(text.substr(0, length))) << length;
  for (const auto* none : {"", "{}", "[]", "null", "7", R"({"view": 3})"}) EXPECT_FALSE(memory_from(none)) << none;
}

}  // namespace
}  // namespace pliant::agent
