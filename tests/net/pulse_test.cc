#include "net/pulse.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace pliant::net {
namespace {

struct Look {
  std::uint64_t beats;
  std::optional<TaskState> task;
  bool still;
};

void expect(const std::vector<Look>& looks) {
  Pulse pulse;
  for (std::size_t i = 0; i < looks.size(); ++i)
    EXPECT_EQ(pulse.stands_still(looks[i].beats, [&] { return looks[i].task; }), looks[i].still) << "look " << i;
}

const TaskState kStopped{'T', 7}, kReady{'R', 7}, kAsleep{'S', 7};

TEST(Pulse, WhoIsStoppedIsSoAfterTwoLooks) {
  expect({{1, kStopped, false}, {1, kStopped, false}, {1, kStopped, true}, {1, kStopped, true}, {2, kStopped, false}});
}

TEST(Pulse, WhoIsReadyToRunIsStarvedHoweverLong) {
  expect({{1, kReady, false},
          {1, kReady, false},
          {1, kReady, false},
          {1, kReady, false},
          {1, kReady, false},
          {1, kReady, false},
          {1, kReady, false},
          {1, kReady, false},
          {1, kAsleep, false},
          {1, kReady, false}});
}

TEST(Pulse, WhoSleepsOnWithoutACoreDoesNotRun) {
  expect({{1, kAsleep, false},
          {1, kAsleep, false},
          {1, kAsleep, false},
          {1, kAsleep, false},
          {1, kAsleep, false},
          {1, kAsleep, true}});
}

TEST(Pulse, WhoHadACoreMeanwhileRuns) {
  std::vector<Look> looks;
  for (std::uint64_t i = 0; i < 20; ++i) looks.push_back({1, TaskState{'S', i}, false});
  expect(looks);
}

TEST(Pulse, NobodyIsAccusedWhereTheKernelSaysNothing) {
  expect({{1, {}, false}, {1, {}, false}, {1, {}, false}, {1, {}, false}, {1, {}, false}, {1, {}, false}});
}

TEST(Pulse, WhoHasNoCountIsStoppedByTheKernelsWordOnly) {
  auto last_of = [](const std::vector<std::optional<TaskState>>& looks) {
    Pulse pulse;
    bool stopped = false;
    for (const auto& task : looks) stopped = pulse.is_stopped(task);
    return stopped;
  };
  EXPECT_FALSE(last_of({kStopped}));
  EXPECT_TRUE(last_of({kStopped, kStopped}));
  EXPECT_TRUE(last_of({kStopped, kReady, kStopped, kStopped}));
  EXPECT_FALSE(last_of({kStopped, kReady, kStopped}));
  EXPECT_FALSE(last_of({kStopped, {}, kStopped}));
  EXPECT_FALSE(last_of({TaskState{'t', 7}, TaskState{'t', 8}})) << "it has run in between, under a tracer";
  EXPECT_FALSE(last_of({kAsleep, kAsleep, kAsleep, kAsleep, kAsleep, kAsleep, kAsleep, kAsleep}));
}

TEST(Pulse, TheKernelSaysWhoIsStopped) {
  auto child = fork();
  if (child == 0)
    for (;;) pause();
  kill(child, SIGSTOP);
  ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
  auto task = task_state(child, child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(task);
  EXPECT_EQ(task->state, 'T');
  EXPECT_GT(task->runs, 0U);
  EXPECT_FALSE(task_state(child, child));
}

}  // namespace
}  // namespace pliant::net
