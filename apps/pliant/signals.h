// The signals that end things, as events of a loop.
#pragma once

#include <functional>

#include "base/fd.h"
#include "base/result.h"
#include "net/loop.h"

namespace pliant::cli {

class SignalWatch {
 public:
  /// Blocks INT, TERM, QUIT and HUP for good, and ignores PIPE and XFSZ. HUP stays ignored if it came so (nohup), or if
  /// there is no `terminal` to hang up. `on_signal` gets their numbers on the loop's thread.
  static Result<SignalWatch> start(net::Loop& loop, std::function<void(int)> on_signal, bool terminal = true);
  SignalWatch() = default;

 private:
  Fd signals_;
};

}  // namespace pliant::cli
