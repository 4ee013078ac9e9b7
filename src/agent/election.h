// Which host has the coordinator of a job on several, by the word of a store outside of the job (membership/store.h).
// Whoever takes the place of another knows what the store said before, so that of several only one gets it.
//
//   the coordinator answers   the store says                   action
//   yes                       -                                -
//   no                        nothing yet                      offer ourselves
//   no                        nothing any more, where our      store that again
//                             own place was
//   no                        another place                    look there
//   no, for kPatience         the place that does not answer,  offer ourselves
//                             or nothing any more
//
// A place that is gone was removed by somebody else, or does not count (membership/signed_store.h). The coordinator
// that is there stores it again (tenure.h), so it gets the time for that.
//
// On a slow machine a coordinator may take longer to begin. Patience doubles with every new place until one has been
// steady, so that hosts do not take it from each other for ever.
// That two are there for a while does no harm: members promise terms, and one has the higher.
// Threads: those of the store's callbacks, which is one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "membership/store.h"

namespace pliant::agent {

struct ElectionEvents {
  /// Where the coordinator would be if it were here ("tcp:10.0.0.1:4711"). It is asked for when that is wanted.
  std::function<Result<std::string>()> offer;
  /// The coordinator is there from now on; `here` if this host shall have it.
  std::function<void(const std::string& address, bool here)> on_place;
  /// A line when the store begins not to answer.
  std::function<void(const std::string&)> on_trouble;
};

class Election {
 public:
  static constexpr Nanos kPatience = std::chrono::milliseconds(300);
  static constexpr Nanos kMostPatience = 16 * kPatience;
  static constexpr Nanos kSteady = std::chrono::seconds(10);

  /// The clock must outlive it.
  Election(const Clock& clock, std::unique_ptr<membership::Store> store, std::string job, ElectionEvents events);
  Election(const Election&) = delete;
  Election& operator=(const Election&) = delete;

  /// Now and then, with how long the coordinator has not answered; nothing if it does.
  void tick(std::optional<Nanos> missed_for);
  /// Removes all that the store has of this job; `done` is called in any case.
  void forget(std::function<void()> done);

 private:
  void on_read(const Result<membership::Entry>& entry, Nanos silent_for);
  void offer(std::uint64_t revision);
  void store_own(std::uint64_t revision);
  void learn(const membership::Entry& entry);
  void fail(const Error& error);

  const Clock& clock_;
  const std::string job_;
  const ElectionEvents events_;
  std::unique_ptr<membership::Store> store_;
  std::string own_;    // what was offered; empty: nothing yet
  std::string place_;  // by the store's last word
  Nanos learned_{0};
  Nanos patience_ = kPatience;
  bool asking_ = false;
  bool in_trouble_ = false;
};

/// Where the store has a job's coordinator, and what its coordinators remember.
std::string place_key(const std::string& job);
std::string memory_key(const std::string& job);

}  // namespace pliant::agent
