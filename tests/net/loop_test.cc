#include "net/loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
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

TEST(Loop, WritableIsToldOnlyWhileItIsWanted) {
  Loop loop;
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));  // can always be written, never read
  int calls = 0;
  loop.watch(
      event.get(), [] { ADD_FAILURE() << "there is nothing to read"; },
      [&] {
        if (++calls == 3) loop.want_writable(event.get(), false);  // again and again until then
      });
  int ticks = 0;
  loop.every(1ms, [&] {
    if (++ticks == 3) {
      EXPECT_EQ(calls, 0);
      loop.want_writable(event.get(), true);
    }
    if (ticks == 9) loop.stop();
  });
  loop.run();
  EXPECT_EQ(calls, 3);
}

TEST(Loop, WatchingAgainForgetsTheOldWishes) {
  Loop loop;
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  auto never = [] { ADD_FAILURE() << "nobody wants to know"; };
  loop.watch(event.get(), never, never);
  loop.want_writable(event.get(), true);
  loop.watch(event.get(), never, never);
  int ticks = 0;
  loop.every(1ms, [&] {
    if (++ticks == 3) loop.stop();
  });
  loop.run();
}

TEST(Loop, ReadableMayUnwatchBeforeWritableIsTold) {
  Loop loop;
  Fd event(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));  // both at once
  loop.watch(
      event.get(),
      [&] {
        loop.unwatch(event.get());
        loop.post([&] { loop.stop(); });
      },
      [] { ADD_FAILURE() << "it was unwatched"; });
  loop.want_writable(event.get(), true);
  loop.run();
}

TEST(Loop, AHangUpIsToldToBoth) {
  Loop loop;
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  Fd reader(ends[0]);
  Fd writer(ends[1]);
  reader.reset();
  int readable = 0;
  int writable = 0;
  loop.watch(
      writer.get(), [&] { ++readable; },
      [&] {
        ++writable;
        loop.stop();
      });
  loop.want_writable(writer.get(), true);
  loop.run();
  EXPECT_EQ(readable, 1);
  EXPECT_EQ(writable, 1);
}

TEST(Loop, EventsOfAnOldDescriptorDoNotReachANewOneOfTheSameNumber) {
  Loop loop;
  std::array<Fd, 2> events{Fd(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)), Fd(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK))};
  int first = -1;
  auto replace = [&](int other) {
    if (first >= 0) return;
    first = 1 - other;
    auto number = events[other].get();
    loop.unwatch(number);
    events[other] = Fd();
    events[other] = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));  // not readable
    ASSERT_EQ(events[other].get(), number);
    loop.watch(number, [] { ADD_FAILURE() << "that was meant for another"; });
    loop.unwatch(events[first].get());
    loop.post([&] { loop.stop(); });
  };
  loop.watch(events[0].get(), [&] { replace(1); });
  loop.watch(events[1].get(), [&] { replace(0); });
  loop.run();
  EXPECT_GE(first, 0);
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
