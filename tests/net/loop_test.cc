#include "net/loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>

namespace pliant::net {
namespace {

using namespace std::chrono_literals;

TEST(Loop, RunsPostedTasksInOrderOnItsOwnThread) {
  Loop loop;
  std::vector<int> order;
  std::thread::id where;
  std::thread thread([&] { loop.run(); });
  loop.post([&] {
    order.push_back(1);
    where = std::this_thread::get_id();
  });
  loop.post([&] { order.push_back(2); });
  loop.post([&] { loop.stop(); });
  auto id = thread.get_id();
  thread.join();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(where, id);
}

TEST(Loop, ACallbackMayUnwatchItself) {
  Loop loop;
  Fd event(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  int calls = 0;
  loop.watch(event.get(), [&] {
    ++calls;
    loop.unwatch(event.get());  // still readable: would be called for ever otherwise
  });
  int ticks = 0;
  loop.every(1ms, [&] {
    if (++ticks == 3) loop.stop();
  });
  loop.run();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(ticks, 3);
}

TEST(Loop, ACancelledTimerDoesNotRun) {
  Loop loop;
  int calls = 0;
  auto timer = loop.every(1ms, [&] { ++calls; });
  loop.every(1ms, [&] {
    loop.cancel(timer);
    if (calls > 1) ADD_FAILURE() << "it ran after it was cancelled";
    static int ticks = 0;
    if (++ticks == 4) loop.stop();
  });
  loop.run();
  EXPECT_LE(calls, 1);
}

}  // namespace
}  // namespace pliant::net
