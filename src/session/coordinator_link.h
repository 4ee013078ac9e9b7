// A worker's line to the coordinator: joins over it, then only reports. Nothing on the step path waits for it, and
// its end is no reason to stop.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/result.h"
#include "membership/view.h"
#include "wire/messages.h"

namespace pliant::session {

class CoordinatorLink {
 public:
  /// Connects, asks to join and waits for the view.
  static Result<std::unique_ptr<CoordinatorLink>> join(const std::string& address, const wire::Join& join);
  ~CoordinatorLink();
  CoordinatorLink(const CoordinatorLink&) = delete;
  CoordinatorLink& operator=(const CoordinatorLink&) = delete;

  const membership::View& view() const { return view_; }
  /// Replaces what will be reported next, within a fraction of a second. Never blocks.
  void report(wire::Progress progress);
  /// Sent at once, from the caller's thread.
  void complain(int rank, const std::string& reason);

 private:
  CoordinatorLink(Fd socket, membership::View view);
  void run();

  Fd socket_;
  membership::View view_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<wire::Progress> progress_;  // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  std::thread thread_;
};

}  // namespace pliant::session
