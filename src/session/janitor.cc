#include "session/janitor.h"

#include <utility>

#include "base/system.h"

namespace pliant::session {

void Janitor::take(Remains remains) { post({std::move(remains)}); }

void Janitor::make_spares(const Regions& regions) { post({{}, {regions.begin(), regions.end()}}); }

void Janitor::post(Task task) {
  std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(task));
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  wake_.notify_one();
}

/// Until it is stopped; what waits then goes with the queue.
void Janitor::work(const std::stop_token& stop) {
  lower_priority();
  std::unique_lock lock(mutex_);
  while (wake_.wait(lock, stop, [this] { return !waiting_.empty(); })) {
    auto task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task.remains = {};
    for (const auto& wanting : task.wanting)
      if (auto region = wanting.lock()) region->make_spare(stop);
    lock.lock();
  }
}

}  // namespace pliant::session
