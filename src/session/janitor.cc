#include "session/janitor.h"

#include <utility>

#include "base/system.h"

namespace pliant::session {

void Janitor::take(Remains remains) {
  std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(remains));
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  wake_.notify_one();
}

/// Until it is stopped; what waits then goes with the queue.
void Janitor::work(const std::stop_token& stop) {
  lower_priority();
  std::unique_lock lock(mutex_);
  while (wake_.wait(lock, stop, [this] { return !waiting_.empty(); })) {
    auto remains = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    remains = {};
    lock.lock();
  }
}

}  // namespace pliant::session
