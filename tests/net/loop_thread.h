// A loop on a thread of its own. What lives on the loop is made, touched and destroyed there only.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

#include "net/loop.h"

namespace pliant::net {

class LoopThread {
 public:
  LoopThread() : thread_([this] { loop_.run(); }) {}
  ~LoopThread() {
    loop_.stop();
    thread_.join();
  }
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  Loop& loop() { return loop_; }

  /// Does it there, and waits until it is done.
  template <class Task>
  auto do_there(Task task) {
    // Shared: the result may be had before the task has quite returned.
    auto packaged = std::make_shared<std::packaged_task<std::invoke_result_t<Task>()>>(std::move(task));
    auto result = packaged->get_future();
    loop_.post([packaged] { (*packaged)(); });
    return result.get();
  }

  /// Begins something there that ends with a callback, and waits for what that is given.
  template <class Outcome>
  Outcome outcome_of(const std::function<void(std::function<void(Outcome)>)>& begin) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    auto outcome = promise->get_future();
    do_there([&] { begin([promise](Outcome result) { promise->set_value(std::move(result)); }); });
    return outcome.get();
  }

 private:
  Loop loop_;
  std::thread thread_;
};

}  // namespace pliant::net
