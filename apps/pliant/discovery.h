// A script of the user's that says which hosts there are now: run again and again, one host per line of its output
// ("name slots=2", "name:2" or "name"). What fails, takes too long or makes no sense changes nothing, and is said once.
// Threads: lives on its loop's thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/job_dir.h"
#include "apps/pliant/watched_process.h"
#include "base/clock.h"
#include "net/loop.h"

namespace pliant::cli {

class Discovery {
 public:
  static constexpr Nanos kPause = std::chrono::seconds(1);      ///< between the end of a run and the next
  static constexpr Nanos kPatience = std::chrono::seconds(30);  ///< for one run

  /// Runs `script` with its output in files of `dir`. `on_hosts` gets each answer, `on_trouble` a line when it begins
  /// to fail.
  Discovery(net::Loop& loop, std::string script, const std::string& dir,
            std::function<void(std::vector<HostSlots>)> on_hosts, std::function<void(const std::string&)> on_trouble);
  ~Discovery();
  Discovery(const Discovery&) = delete;
  Discovery& operator=(const Discovery&) = delete;

 private:
  void tick();
  void run();
  void on_end();
  void fail(const std::string& why);

  net::Loop& loop_;
  SteadyClock clock_;
  const std::string script_;
  const std::string answer_;  // files
  const std::string errors_;
  const std::function<void(std::vector<HostSlots>)> on_hosts_;
  const std::function<void(const std::string&)> on_trouble_;
  net::Loop::Timer timer_;
  std::optional<WatchedProcess> process_;
  Nanos began_{0}, ended_;
  bool in_trouble_ = false;
};

}  // namespace pliant::cli
