// Workers whose loop an exception leaves, while their session lives on.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "session/workers.h"

namespace pliant::session {
namespace {

using namespace std::chrono_literals;

/// Worker 2 leaves its loop in step 3, catches, and waits with its session until the others have finished.
void train(std::unique_ptr<Runtime> runtime, std::atomic<int>& finished) {
  Session session(std::move(runtime));
  try {
    for (auto step : session.steps({.steps = 20})) {
      if (session.worker() == 2 && step.index() == 3) throw std::runtime_error("of the program's own");
      float one = 1;
      session.all_reduce<float>("sum", std::span(&one, 1));
      EXPECT_EQ(one, step.index() < 3 ? 3 : 2) << "step " << step.index();
    }
    EXPECT_EQ(session.outcome(), Outcome::finished);
    ++finished;
  } catch (const std::runtime_error&) {
    EXPECT_EQ(session.worker(), 2U);
    EXPECT_EQ(session.outcome(), Outcome::failed);
    while (finished < 2) std::this_thread::sleep_for(1ms);
  }
}

TEST(Unwinding, HoldsNobodyUp) {
  std::atomic<int> finished{0};
  run_runtimes(3, [&](std::unique_ptr<Runtime> runtime) { train(std::move(runtime), finished); });
}

TEST(Unwinding, HoldsNobodyUpOnAnotherHost) {
  std::atomic<int> finished{0};
  run_runtimes_on({0, 0, 1}, [&](std::unique_ptr<Runtime> runtime) { train(std::move(runtime), finished); });
}

TEST(Unwinding, LeavesASessionThatSaysSo) {
  std::atomic<bool> said{false};
  run_runtimes(2, [&](std::unique_ptr<Runtime> runtime) {
    Session session(std::move(runtime));
    try {
      for (auto step : session.steps({.steps = 4}))
        if (session.worker() == 1 && step.index() == 2) throw std::runtime_error("of the program's own");
    } catch (const std::runtime_error&) {
      try {
        (void)session.steps({.steps = 1});
      } catch (const Failure& failure) {
        said = std::string_view(failure.what()).find("has left the loop of this session in step 2") !=
               std::string_view::npos;
      }
    }
  });
  EXPECT_TRUE(said);
}

/// There is nobody to leave.
TEST(Unwinding, AJobOfOneMayBeginAnotherLoop) {
  auto session = Session::join();
  try {
    for ([[maybe_unused]] auto step : session.steps({.steps = 4})) throw std::runtime_error("of the program's own");
  } catch (const std::runtime_error&) {
  }
  int steps = 0;
  for ([[maybe_unused]] auto step : session.steps({.steps = 4})) ++steps;
  EXPECT_EQ(steps, 4);
}

}  // namespace
}  // namespace pliant::session
