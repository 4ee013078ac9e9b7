// How a worker talks: to the job's other workers, to the coordinator, and to a store outside of the job. Production
// has sockets and a thread that serves them (socket_transport.h); a simulation has a twin.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "collective/group.h"
#include "collective/mesh.h"
#include "membership/store.h"
#include "wire/messages.h"

namespace pliant::session {

/// Called on the transport's own thread, one at a time.
struct TransportEvents {
  /// From another worker: agreement on views, or that it has entered one.
  std::function<void(std::uint64_t from, const wire::Message& message)> on_letter;
  std::function<void(const collective::PeerLoss& loss)> on_lost;
  /// There is a connection to it, perhaps again.
  std::function<void(std::uint64_t id)> on_found;
  /// About twenty times a second.
  std::function<void()> on_tick;

  /// The first message of every connection to the coordinator.
  std::function<wire::Join()> introduce;
  std::function<void(const wire::Message& message)> on_coordinator;
  /// There is no connection to the coordinator; `since` is how long there has been none.
  std::function<void(Nanos since, const std::string& why)> on_silence;
};

/// Threads: any. Nothing here waits, unless it says so.
class Transport {
 public:
  virtual ~Transport() = default;
  /// From here on events are told. Once, before anything else.
  virtual void start(TransportEvents events) = 0;
  /// After this no event is told any more.
  virtual void stop() = 0;

  // ---- workers ----
  /// There shall be connections to these.
  virtual void expect(std::vector<wire::Member> members) = 0;
  /// In order, to those that are not lost. What is sent before a connection stands waits for it.
  virtual void send(std::vector<std::uint64_t> ids, wire::Message message) = 0;
  /// There are connections to all of these, but this worker itself.
  virtual bool reaches(const std::vector<wire::Member>& members) const = 0;
  /// Somebody's kernel says that this worker's process is gone, which was in that view. Soon told as a proven loss.
  virtual void believe_dead(std::uint64_t id, wire::LastView view) = 0;
  /// A worker has sent what no honest one sends, which is `what`: it is named, lost without proof, and not let in
  /// again.
  virtual void leave_behind(std::uint64_t id, const std::string& what) = 0;
  /// This worker has settled in another view. The dead that are not among `at_hand`, and were not the last time, need
  /// not be known any more.
  virtual void on_settled(std::set<std::uint64_t> at_hand) = 0;
  /// From now on this worker acts in that view, or votes on what follows it: a proof of its death will say so.
  virtual void note_view(wire::LastView view) = 0;
  /// Enters a view with all of its members. Blocks until all have, or one is lost.
  virtual Result<std::unique_ptr<collective::Group>> form(collective::Team team) = 0;

  // ---- the coordinator ----
  /// Lost if there is no connection.
  virtual void tell(wire::Message message) = 0;
  /// Replaces what will be reported next.
  virtual void report(wire::Progress progress) = 0;

  /// This worker's loop has ended after `step` steps; also left in writing, for whoever finds its process ended.
  virtual void report_outcome(Outcome outcome, std::uint64_t step) = 0;
  /// Tells workers and coordinator that this worker goes, and how, and returns when that is sent.
  virtual void say_goodbye(Outcome outcome, std::uint64_t step) = 0;
  /// After the goodbye: ends all connections, for good.
  virtual void hang_up() = 0;

  // ---- the store ----
  /// `text` becomes the value of `key`, unless there is one. REQUIRES: the job has a store.
  using Answered = std::function<void(const Result<membership::Attempt>& attempt)>;
  virtual void decide(const std::string& key, const std::string& text, Answered answered) = 0;
};

using TransportOpener = std::function<std::unique_ptr<Transport>()>;

}  // namespace pliant::session
