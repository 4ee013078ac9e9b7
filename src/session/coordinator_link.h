// A worker's line to the coordinator. Nothing on the step path waits for it, and its end is no reason to stop: it is
// made again when there is a coordinator again.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "net/dialer.h"
#include "net/line.h"
#include "net/loop.h"
#include "wire/messages.h"

namespace pliant::session {

struct LinkEvents {
  /// The first message of every connection.
  std::function<wire::Join()> introduce;
  std::function<void(const wire::Message& message)> on_message;
  /// There is no connection; `since` is how long there has been none.
  std::function<void(Nanos since, const std::string& why)> on_silence;
};

/// Threads: the loop's, except report().
class CoordinatorLink {
 public:
  /// `credentials` are needed if the coordinator is on another host.
  CoordinatorLink(net::Loop& loop, std::string address, LinkEvents events,
                  std::optional<net::Credentials> credentials = std::nullopt);
  ~CoordinatorLink();
  CoordinatorLink(const CoordinatorLink&) = delete;
  CoordinatorLink& operator=(const CoordinatorLink&) = delete;

  /// Lost if there is no connection, or if the coordinator does not read.
  void send(const wire::Message& message);
  /// Replaces what will be reported next, within a fraction of a second. Never blocks.
  void report(wire::Progress progress);
  /// Sends at once what was to be reported.
  void flush();

 private:
  void tick();
  void connected(net::Line line);
  void read();
  void close(const std::string& why);

  net::Loop& loop_;
  const LinkEvents events_;
  SteadyClock clock_;
  net::Line line_;
  std::string address_;  // of the line
  net::Loop::Timer timer_ = 0;
  Nanos silent_since_;
  std::string why_;

  std::mutex mutex_;
  std::optional<wire::Progress> progress_;  // guarded by mutex_
  net::Dialer dialer_;
};

}  // namespace pliant::session
