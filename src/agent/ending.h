// How a worker's process ended.
#pragma once

#include <string>

namespace pliant::agent {

struct Ending {
  int code = 0;
  int signal = 0;
  bool unknown = false;  ///< the process was not our child
  bool good() const { return code == 0 && signal == 0 && !unknown; }
  bool by_itself() const { return signal == 0 && !unknown; }
  /// As a shell reports it.
  int exit_status() const { return unknown ? 1 : (signal ? 128 + signal : code); }
  /// "killed by signal 9 (Killed)" or "exit code 3".
  std::string words() const;
};

}  // namespace pliant::agent
