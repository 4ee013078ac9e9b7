// Commands that chaos has started and does not wait for: their output goes to one file, and who fails is named.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/pliant/watched_process.h"
#include "base/result.h"

namespace pliant::cli::chaos {

class Children {
 public:
  /// `say` gets a line about each that failed.
  Children(std::string log, std::function<void(const std::string&)> say) : log_(std::move(log)), say_(std::move(say)) {}

  /// "pliant" is this program. In a session of its own: it goes on, whatever becomes of this process.
  Result<WatchedProcess> spawn(const std::vector<std::string>& words) const;
  /// The same, kept here under a name.
  void start(const std::vector<std::string>& words, const std::string& what);
  /// For /bin/sh; the command is its name.
  void run_command(const std::string& command) { start({"/bin/sh", "-c", command}, command); }
  /// Reaps it, once it ends; nobody is told how.
  void adopt(WatchedProcess process) { children_.push_back({std::move(process), ""}); }
  /// Whether something of that name runs, as of the last reap().
  bool runs(const std::string& what) const;
  void reap();

 private:
  struct Child {
    WatchedProcess process;
    std::string what;
  };
  const std::string log_;
  const std::function<void(const std::string&)> say_;
  std::vector<Child> children_;
};

}  // namespace pliant::cli::chaos
