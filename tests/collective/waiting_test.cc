// Sleeping and waking: no news may be slept through.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "base/fault.h"
#include "collective/team.h"

namespace pliant::collective {
namespace {

using namespace std::chrono_literals;

thread_local bool held_up = false;  // this thread shall stop where it has worked and not yet let others work

/// Raised once.
class Flag {
 public:
  void raise() {
    up_ = true;
    up_.notify_all();
  }
  void wait() const { up_.wait(false); }

 private:
  std::atomic<bool> up_{false};
};

// One thread waits for a row, and holds the work lock when news for another one come; then its row is there, too, and
// it goes. The other one, which could not look because of the first, must not sleep on.
TEST(Waiting, NewsThatCameWhileAnotherThreadWorkedAreNotSleptThrough) {
  Flag working, submitted, go_on;
  fault::intercept([&](const char* point) {
    if (std::string_view(point) != "worked" || !std::exchange(held_up, false)) return;
    working.raise();
    go_on.wait();
  });
  GroupOptions options;
  options.nap = 1h;
  options.stall_notice = options.deadlock_notice = 24h;
  TeamPlan plan(2);
  auto request_in = [](Group& group) {
    auto region = group.create_region("r", 4096).or_throw();
    Request request{.name = "g", .count = 1024, .region = region, .caller_waits = true};
    group.wait(group.submit(request).or_throw()).or_throw();  // all memory is there from here on
    return request;
  };
  auto first = std::async(std::launch::async, [&] {
    auto group = plan.form(0, options);
    auto request = request_in(*group);
    auto operation = group->submit(request).or_throw();
    std::thread other([&] {
      held_up = true;
      group->exchange("row").or_throw();
    });
    working.wait();
    bool done = group->wait(operation).ok();
    other.join();
    group->leave();
    return done;
  });
  auto second = std::async(std::launch::async, [&] {
    auto group = plan.form(1, options);
    auto request = request_in(*group);
    working.wait();
    auto operation = group->submit(request).or_throw();
    group->exchange("row").or_throw();
    submitted.raise();
    bool done = group->wait(operation).ok();
    group->leave();
    return done;
  });
  submitted.wait();
  std::this_thread::sleep_for(300ms);  // by now the first rank sleeps, most likely; it must make no difference
  go_on.raise();
  bool in_time = first.wait_for(60s) == std::future_status::ready && second.wait_for(60s) == std::future_status::ready;
  EXPECT_TRUE(in_time) << "a rank sleeps although all it waits for is there";
  if (!in_time) std::quick_exit(1);  // it would for an hour
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
  fault::intercept({});
}

}  // namespace
}  // namespace pliant::collective
