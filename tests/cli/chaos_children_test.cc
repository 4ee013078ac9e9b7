#include "apps/pliant/chaos_children.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

namespace pliant::cli::chaos {
namespace {

using namespace std::chrono_literals;

struct Started {
  const std::string log = fmt::format("{}/pliant-children-{}", testing::TempDir(), getpid());
  std::vector<std::string> said;
  Children children{log, [this](const std::string& line) { said.push_back(line); }};
  ~Started() { std::filesystem::remove(log); }
  void wait_for(const std::string& what) {
    auto end = std::chrono::steady_clock::now() + 60s;
    while (children.runs(what) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(1ms), children.reap();
    EXPECT_FALSE(children.runs(what));
  }
};

TEST(ChaosChildren, WhoFailsIsNamed) {
  Started started;
  started.children.run_command("true");
  started.children.run_command("exit 3");
  EXPECT_TRUE(started.children.runs("true"));
  EXPECT_FALSE(started.children.runs("another"));
  EXPECT_FALSE(started.children.runs(""));
  started.wait_for("true");
  started.wait_for("exit 3");
  ASSERT_EQ(started.said.size(), 1U);
  EXPECT_NE(started.said[0].find("exit 3: exit code 3"), std::string::npos) << started.said[0];
}

TEST(ChaosChildren, WhatCannotBeStartedIsSaidAtOnce) {
  Started started;
  started.children.start({"/nowhere/at-all"}, "nobody");
  EXPECT_FALSE(started.children.runs("nobody"));
  EXPECT_EQ(started.said.size(), 1U);
}

}  // namespace
}  // namespace pliant::cli::chaos
