#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "session/platform.h"

namespace pliant::session {

/// Gives memory back, and makes spares, on the side: that takes longer than to go on without.
///
/// Its thread begins with the first of either and lives as long as the session: a program that ends in the middle
/// of it leaves a running thread, never one that nobody has waited for.
class Janitor final : public Reclaimer {
 public:
  void take(Remains remains) override;
  void make_spares(const Regions& regions) override;

 private:
  struct Task {
    Remains remains;
    std::vector<std::weak_ptr<collective::Region>>
        wanting{};  // spares; whoever uses a region decides how long it lives
  };
  void post(Task task);
  void work(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Task> waiting_;
  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace pliant::session
