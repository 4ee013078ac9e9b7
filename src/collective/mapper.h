// A thread that maps neighbours' memory. Gigabytes take a second, and the thread that neighbours' messages come on also
// sends heartbeats to other hosts, which would count as silence.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace pliant::collective {

class Mapper {
 public:
  Mapper() = default;
  /// Waits for the task in progress; the others are dropped.
  ~Mapper();
  Mapper(const Mapper&) = delete;
  Mapper& operator=(const Mapper&) = delete;

  /// Runs `task` on the thread, in the order of these calls. The thread begins with the first one. From any thread.
  void post(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
  std::thread thread_;                       // guarded by mutex_ until it runs
};

}  // namespace pliant::collective
