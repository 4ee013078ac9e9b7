// Who may speak to a job's coordinator, and in whose name: what lies between connections and the state machine
// membership::Coordinator. A machine without I/O: the coordinator's process drives it, and so does the simulation of
// whole jobs.
//
// Strangers cannot harm the job: what names another job or comes out of turn is refused, counted and logged at debug
// level. Connections that are neither a worker's nor an agent's are bounded in number and in time. A worker's place is
// for its own process and for those that it started, by the kernel's word; which process that is, the agent says. A
// worker may be faster than its agent: its request waits for that word. On other hosts there is no such word: whoever
// knows the job's secret may come in the name of any worker or host, and change the job.
//
// What the next coordinator must know is kept before anybody relies on what follows from it. A store that does not
// answer holds up nothing for long but the beginning of a lineage (the first view, or one that begins again from a
// checkpoint), and all that follows it: a successor that knows nothing of it would begin another.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/chronicle.h"
#include "base/clock.h"
#include "membership/coordinator.h"
#include "session/worker_note.h"
#include "wire/messages.h"

namespace pliant::agent {

using membership::Link;

/// What a reception has done and asks for. Every call comes from within one of its events.
class Desk {
 public:
  virtual ~Desk() = default;
  virtual void send(Link link, const wire::Message& message) = 0;
  /// Closes a connection after what was sent. No event follows.
  virtual void hang_up(Link link) = 0;
  /// Takes in what has come on a connection by now.
  virtual void hear(Link link) = 0;

  // ---- processes of this host, by the kernel's word ----
  /// The worker whose process this is, or has started this one.
  virtual std::optional<std::uint64_t> owner_of(pid_t pid) const = 0;
  virtual bool knows(std::uint64_t worker) const = 0;
  /// A worker's process: as the view says, as the agent says, and the one that joined in its name.
  virtual void know(std::uint64_t worker, pid_t pid) = 0;
  virtual void started(std::uint64_t worker, pid_t pid) = 0;
  virtual void watch(std::uint64_t worker, pid_t pid) = 0;
  virtual bool is_agent(pid_t pid) const = 0;
  /// What a worker has written down.
  virtual session::WorkerNote note_of(std::uint64_t worker) const = 0;

  // ---- the job ----
  /// What agents on other hosts are to start.
  virtual std::string charter() const = 0;
  /// To be kept for the next coordinator, before anybody hears of it.
  virtual void remember(const membership::Memory& memory) = 0;
  /// The newest good checkpoint that the job has written: its step, or why there is none. May read all of it.
  virtual Result<std::uint64_t> newest_checkpoint() = 0;
  /// What is said binds the next coordinator too (agent/tenure.h).
  virtual void once_sure(std::function<void(bool sure)> say) = 0;
};

/// Whose connection it is.
struct Caller {
  pid_t pid = 0;                          ///< by the kernel's word; 0 if it is on another host
  std::optional<std::uint64_t> remote{};  ///< in whose name it calls then, proved by the secret
};

class Reception {
 public:
  /// For a stranger to send a request, and for the agent to name a worker's process.
  static constexpr Nanos kTimeToSpeak = std::chrono::seconds(5);
  /// For a worker of this job to send its request; it may be slow on a busy machine.
  static constexpr Nanos kWorkersTimeToJoin = std::chrono::seconds(60);
  static constexpr std::size_t kSpareConnections = 64;

  /// All must outlive it.
  Reception(const Clock& clock, const membership::CoordinatorOptions& options,
            const std::optional<membership::Memory>& memory, Desk& desk, Chronicle& chronicle);
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  /// Before any other event.
  void begin() { deliver(coordinator_.on_time(clock_.now())); }
  void on_call(Link link, Caller caller);
  void on_message(Link link, const wire::Message& message);
  void on_closed(Link link);
  /// What came on a connection was no message: it is closed.
  void on_garbage(Link link, const std::string& what);
  /// A worker's process that was watched has ended.
  void on_gone(std::uint64_t worker);
  /// Now and then.
  void on_time();
  /// More often: far agents cannot see that this process is gone if its host goes with it.
  void pulse();

  const membership::Coordinator& coordinator() const { return coordinator_; }
  /// An agent or a worker is connected.
  bool anybody_placed() const;
  /// Connections and messages that were turned away.
  std::uint64_t refused() const { return refused_; }
  void count_refused() { ++refused_; }

 private:
  struct Place {
    Caller caller;
    Nanos since{0};
    bool agent = false;
    std::optional<std::uint64_t> worker{};  // once it has joined
    std::optional<wire::Join> request{};    // waits until the agent has named the worker's process
    bool taken() const { return agent || worker; }
  };
  /// What is to be sent once it is sure that the next coordinator would know what it follows from.
  struct Batch {
    std::uint64_t number = 0;
    membership::Letters letters;
    bool founds = false;  // a lineage
    enum class Fate { open, sure, unsure } fate = Fate::open;
  };
  void make_room();
  void on_join(Link link, const wire::Join& join);
  void place(Link link, const wire::Join& join);
  void on_hello(Link link, const wire::AgentHello& hello);
  void on_started(const wire::Started& started);  // on this host
  void hear_last_words(std::uint64_t worker);
  void deliver(const membership::Letters& letters);
  void keep(const membership::Memory& memory);
  bool founds(const membership::Memory& memory) const;
  void ask(std::uint64_t number);
  void decide(std::uint64_t number, bool sure);
  void send_what_may_go();
  membership::Letters take_what_waited(std::deque<Batch>::iterator at);
  void send_letter(const membership::Outgoing& letter, bool sure);
  void send(Link link, const wire::Message& message);
  void refuse(Link link, const std::string& reason);

  const Clock& clock_;
  membership::Coordinator coordinator_;
  Desk& desk_;
  Chronicle& chronicle_;
  const std::size_t most_strangers_;
  std::map<Link, Place> places_;  // in order of arrival
  std::optional<membership::Memory> kept_;
  std::deque<Batch> batches_;
  std::uint64_t next_batch_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace pliant::agent
