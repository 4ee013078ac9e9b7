// The twin of a store outside of a job: a few values, and moments at which it does not answer.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "membership/store.h"
#include "simulation/scheduler.h"

namespace pliant::sim {

class TwinServer {
 public:
  explicit TwinServer(Scheduler& scheduler) : scheduler_(scheduler) {}
  void set_silent(bool silent) { silent_ = silent; }

  Result<membership::Entry> read(const std::string& key) const;
  Result<membership::Attempt> replace(const std::string& key, std::uint64_t revision, const std::string& text);
  Status remove_all(const std::string& prefix);

  /// A user's connection to it. The server must outlive it.
  std::unique_ptr<membership::Store> open();
  Scheduler& scheduler() { return scheduler_; }

 private:
  Scheduler& scheduler_;
  std::map<std::string, membership::Entry> entries_;
  bool silent_ = false;
};

}  // namespace pliant::sim
