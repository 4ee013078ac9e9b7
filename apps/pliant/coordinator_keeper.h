// The agent's hold on its job's coordinator: starts it, starts it again when it dies, and keeps a connection to it.
//
//   connected  child   every tick, and when either changes
//   no         any     try to connect; if nobody listens and no child runs, start one (if it is this agent's to start)
//   yes        any     -
//
// A coordinator that somebody else has started serves just as well: then there is no child. With a store, whose it is
// to start is decided there (election.h), and the place may change.
//
// One on another host that is silent for kSilence is as good as gone.
// Threads: lives on its loop's thread.
#pragma once

#include <sys/resource.h>

#include <functional>
#include <optional>
#include <string>

#include "agent/election.h"
#include "agent/restarts.h"
#include "apps/pliant/outbox.h"
#include "apps/pliant/watched_process.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/dialer.h"
#include "net/loop.h"
#include "wire/messages.h"

namespace pliant::cli {

struct KeeperEvents {
  /// A new connection stands: introduce the agent.
  std::function<void()> on_connected;
  std::function<void(const wire::Message& message)> on_message;
  /// With a store: where the coordinator would be if it were here, made ready for it.
  std::function<Result<std::string>()> offer{};
  /// With a store: it is there from now on.
  std::function<void(const std::string& address)> on_place{};
  std::function<void(const std::string& line)> on_trouble{};
  /// It has never answered, and dies as soon as it is started: the job cannot begin. Nothing more will be tried.
  std::function<void(const Error& error)> on_hopeless;
};

struct KeeperOptions {
  std::string dir;                                ///< the job's
  std::string address;                            ///< where its coordinator listens
  std::optional<net::Credentials> credentials{};  ///< if that is on another host, or there is a store
  std::string store{};                            ///< that decides where it is; empty: it is always at `address`
  std::string job{};                              ///< its name, for the store
  bool starts = true;                             ///< one, if there is none
  rlimit files{};                                 ///< that it may open
};

class CoordinatorKeeper {
 public:
  static constexpr Nanos kSilence = std::chrono::seconds(1);

  CoordinatorKeeper(net::Loop& loop, KeeperOptions options, KeeperEvents events);
  ~CoordinatorKeeper();
  CoordinatorKeeper(const CoordinatorKeeper&) = delete;
  CoordinatorKeeper& operator=(const CoordinatorKeeper&) = delete;

  bool connected() const { return static_cast<bool>(line_); }
  /// How long there has been no connection; nothing if there is one.
  std::optional<Nanos> missed_for() const;
  /// False if there is no connection; the message is lost then.
  bool send(const wire::Message& message);
  /// Takes in all that has arrived by now.
  void drain() { read(); }
  /// Nothing more is done, and the store forgets the job; then `done`.
  void forget(std::function<void()> done);
  /// Ends the coordinator of this host, whoever started it, and returns when it is gone.
  void end();

 private:
  void tick();
  void elect();
  void dial(const std::string& address);
  bool silent();
  void connected(net::Line line);
  void read();
  void disconnect();
  void start_child();
  void reap_child();
  void kill_own();
  void on_death(const std::string& why, bool by_itself);
  void give_up(const std::string& why);
  std::string words_of(const std::string& why) const;
  std::string err_path() const { return options_.dir + "/coordinator.err"; }

  net::Loop& loop_;
  SteadyClock clock_;
  const KeeperOptions options_;
  const KeeperEvents events_;
  net::Loop::Timer timer_;
  net::Line line_;
  Nanos missed_since_, heard_{0}, ticked_{0};
  Outbox outbox_;
  std::optional<WatchedProcess> child_;
  agent::Restarts restarts_;
  bool hopeless_ = false;
  bool starts_;
  std::optional<net::Dialer> dialer_;
  std::optional<agent::Election> election_;
};

}  // namespace pliant::cli
