// The agent's hold on its job's coordinator: starts it, starts it again when it dies, and keeps a connection to it.
//
//   connected  child   every tick, and when either changes
//   no         any     try to connect; if nobody listens and no child runs, start one
//   yes        any     -
//
// A coordinator that somebody else has started serves just as well: then there is no child.
// Threads: lives on its loop's thread.
#pragma once

#include <sys/resource.h>

#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "apps/pliant/outbox.h"
#include "apps/pliant/watched_process.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/loop.h"
#include "wire/messages.h"

namespace pliant::cli {

struct KeeperEvents {
  /// A new connection stands: introduce the agent.
  std::function<void()> on_connected;
  std::function<void(const wire::Message& message)> on_message;
  /// It dies as soon as it is started, and here is why. Nothing more will be tried.
  std::function<void(const Error& error)> on_hopeless;
};

class CoordinatorKeeper {
 public:
  /// Of five deaths within this time the fifth is too many.
  static constexpr Nanos kTimeOfDeaths = std::chrono::seconds(10);
  static constexpr std::size_t kDeaths = 5;

  /// For the job in `dir`, whose coordinator listens at `address` and may open so many `files`.
  CoordinatorKeeper(net::Loop& loop, std::string dir, std::string address, const rlimit& files, KeeperEvents events);
  ~CoordinatorKeeper();
  CoordinatorKeeper(const CoordinatorKeeper&) = delete;
  CoordinatorKeeper& operator=(const CoordinatorKeeper&) = delete;

  bool connected() const { return static_cast<bool>(line_); }
  /// False if there is no connection; the message is lost then.
  bool send(const wire::Message& message);
  /// Takes in all that has arrived by now.
  void drain() { read(); }
  /// Ends the coordinator, whoever started it, and returns when it is gone.
  void end();

 private:
  void tick();
  bool connect();
  void read();
  void disconnect();
  void start_child();
  void reap_child();
  void give_up(const std::string& why);
  std::string err_path() const { return dir_ + "/coordinator.err"; }

  net::Loop& loop_;
  SteadyClock clock_;
  const std::string dir_;
  const std::string address_;
  const rlimit files_;
  const KeeperEvents events_;
  net::Loop::Timer timer_;
  net::Line line_;
  Outbox outbox_;
  std::optional<WatchedProcess> child_;
  std::deque<Nanos> deaths_;
  bool hopeless_ = false;
};

}  // namespace pliant::cli
