// One of Slurm's programs, run now and then, one run at a time, with its output in files of the job's directory. What
// takes too long is killed, and has not answered.
// Threads: lives on its loop's thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/pliant/watched_process.h"
#include "base/clock.h"
#include "net/loop.h"

namespace pliant::cli {

class SlurmCommand {
 public:
  struct Answer {
    bool good = false;
    std::string text;      ///< what it wrote
    std::string words;     ///< if it is not good: why
    bool doubtful = true;  ///< it may have done what it should, all the same
  };

  SlurmCommand(net::Loop& loop, std::string program, const std::string& dir, Nanos patience);
  /// Kills it, unless leave() was called.
  ~SlurmCommand();
  SlurmCommand(const SlurmCommand&) = delete;
  SlurmCommand& operator=(const SlurmCommand&) = delete;

  const std::string& program() const { return program_; }
  bool busy() const { return process_.has_value(); }
  /// REQUIRES: !busy(). `in` is a file for its stdin, or empty. `on_answer` is called later, from the loop or from
  /// wait(); or at once, if nothing can be started.
  void run(const std::vector<std::string>& words, const std::vector<std::string>& env, const std::string& in,
           std::function<void(const Answer&)> on_answer);
  /// To be called often: ends what takes too long.
  void tick();
  /// Blocks until it has answered, or not for so long.
  void wait(Nanos longest);
  /// Lets it run to its end, whatever becomes of this process.
  void leave();

 private:
  void on_end();

  net::Loop& loop_;
  SteadyClock clock_;
  const std::string program_;
  const std::string out_, err_;  // files
  const Nanos patience_;
  std::optional<WatchedProcess> process_;
  std::function<void(const Answer&)> on_answer_;
  Nanos began_{0};
  bool killed_ = false;
};

}  // namespace pliant::cli
