// How a worker learns that a neighbour's process has ended, with the kernel's word for it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/fd.h"
#include "net/lifeline.h"
#include "net/loop.h"
#include "net/pulse.h"
#include "wire/messages.h"

namespace pliant::collective {

/// Threads: made, used and destroyed on the loop's thread, or while it does not run.
class DeathWatch {
 public:
  /// Called on the loop's thread.
  struct Events {
    std::function<void(std::uint64_t id)> on_ended;         ///< once for each watched process
    std::function<void(std::uint64_t id)> on_standstill{};  ///< its process lives and does not run; now and then
  };
  virtual ~DeathWatch() = default;
  /// Process `pid` is worker `id`, until forget() or another call for this id.
  virtual void watch(std::uint64_t id, pid_t pid) = 0;
  /// The same process's lifeline, see net/lifeline.h.
  virtual void watch_lifeline(std::uint64_t id, const Fd& line) = 0;
  virtual void forget(std::uint64_t id) = 0;
  /// Asked now: is its process gone?
  virtual bool has_ended(std::uint64_t id) const = 0;
  /// For neighbours that want to watch this process's lifeline; nothing if there is none.
  virtual std::optional<int> lifeline() const = 0;
  /// From now on this process acts in that view, as neighbours read it in last_view(). Any thread.
  virtual void note_view(wire::LastView view) = 0;
  /// The view that worker `id` has noted last, also after its death, until forget().
  virtual wire::LastView last_view(std::uint64_t id) const = 0;
};

using WatchMaker = std::function<std::unique_ptr<DeathWatch>(net::Loop& loop, DeathWatch::Events events)>;

/// By pidfd, and by lifeline where there is one: its word comes long before the pidfd's, because the kernel takes a
/// process's memory apart first. A process whose lifeline is not known yet, because it has not greeted, has no count
/// that could stand still: it does not run if the kernel says that it is stopped. If a process ends before it is
/// watched, and its number is another's by then, that one is watched instead: its worker is then lost without proof,
/// and the agent's word (Mesh::believe_dead) is the proof.
class ProcessWatch final : public DeathWatch {
 public:
  ProcessWatch(net::Loop& loop, Events events);
  ~ProcessWatch() override;

  void watch(std::uint64_t id, pid_t pid) override;
  void watch_lifeline(std::uint64_t id, const Fd& line) override;
  void forget(std::uint64_t id) override;
  bool has_ended(std::uint64_t id) const override;
  std::optional<int> lifeline() const override;
  void note_view(wire::LastView view) override;
  wire::LastView last_view(std::uint64_t id) const override;

 private:
  struct Process {
    pid_t pid = 0;
    Fd pidfd;                                        // none while this process has no descriptors to spare
    std::optional<net::Pulse> pulse = net::Pulse();  // as long as its lifeline is not watched
  };
  void open(std::uint64_t id, Process& process);
  void open_missing();
  void marked(std::uint64_t id);
  void look_at_silent();

  net::Loop& loop_;
  const Events events_;
  std::map<std::uint64_t, Process> processes_;                  // by worker's id
  std::optional<net::Loop::Timer> retries_;                     // while a pidfd is missing
  std::optional<net::Loop::Timer> looks_;                       // while a lifeline is
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared: with what was posted and not run yet
  std::unique_ptr<net::Lifeline> lifeline_;                     // nullptr where there can be none
};

}  // namespace pliant::collective
