// The executor: operations in flight, and the one function that moves them forward.
//
// An operation's life, per chunk (a registered reduction has one chunk, and its first and last line are empty):
//
//   needs                                             does                          publishes
//   all have reduced what was in this slot before     copy into the slot            submitted
//   all have submitted; all have copied out the slot  reduce the slices of this rank  reduced
//   all have reduced                                  copy out of the slot          copied
//
// Between hosts, "all" in the first column are those of the host where memory is concerned. What they have reduced then
// crosses (bridge.h) before it is published as reduced: once everybody has described the channel, and has reduced the
// use before (registered) or what was in this slot before (plain). An operation that nobody confirms later is done when
// all have said that they have it (copied).
//
// Threads: submit() takes a short lock only, so that a backward pass never waits for a reduction in progress.
// progress() runs under another lock, taken by whoever waits or by the engine's own thread.
//
// engine.cc: submitting, and the end of a view. progress.cc: the table above. waiting.cc: bells, rows and threads.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "collective/background.h"
#include "collective/bridge.h"
#include "collective/contributions.h"
#include "collective/control.h"
#include "collective/directory.h"
#include "collective/fence.h"
#include "collective/group.h"
#include "collective/kernels.h"
#include "collective/plan.h"
#include "collective/region.h"
#include "collective/rows.h"
#include "collective/waiter.h"

namespace pliant::collective {

/// A channel as its own rank sees it. Never moves and never dies before the engine.
struct LocalChannel {
  std::string name;
  std::uint32_t index = 0;  // in the own control segment
  Channel* own = nullptr;
  std::weak_ptr<SharedRegion> registered;  // the caller's; whoever reduces or reads in it holds it
  std::shared_ptr<SharedRegion> buffer;    // of plain memory, until the name is used with another shape
  Ring ring;                               // plain memory only
  CrossingPlan crossing;                   // what of it passes between hosts
  std::vector<Piece> pieces;               // what this rank reduces; registered memory only
  std::uint64_t uses = 0;                  // of this shape; guarded by Engine::submit_mutex_
  std::vector<const Channel*> peers;       // by rank, nullptr until found; guarded by Engine::work_mutex_ until agreed
  std::atomic<bool> agreed{false};         // all peers are found
};

class Work final : public Operation {
 public:
  enum class State : int { pending, done, failed };

  bool done() const override { return state() == State::done; }
  const void* result() const override { return result_; }
  const Measured& measured() const override { return measured_; }
  const std::vector<MeasuredPart>& own_parts() const override { return parts_; }
  State state() const { return state_.load(std::memory_order_acquire); }
  /// REQUIRES: state() is failed.
  const Error& error() const { return error_; }

 private:
  friend class Engine;
  friend class Diagnosis;
  LocalChannel* channel_ = nullptr;  // nullptr: there was no room for one; of no meaning once the engine is gone
  // Shared: with its user and the channel. What is in flight needs it, and results lie in it, perhaps longer than the
  // group lives.
  std::shared_ptr<SharedRegion> region_;
  std::uint64_t use_ = 0;   // of the name
  double weight_ = 1;       // of this rank's contribution
  std::uint64_t base_ = 0;  // chunks of this channel before this use
  const std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  Measure measure_ = Measure::nothing;
  bool confirmed_later_ = false;
  std::vector<CrossingPtr> crossings_;  // in order of chunks; guarded by Engine::work_mutex_
  std::uint64_t crossing_ = 0;          // chunks that began to cross
  bool everywhere_ = false;             // all ranks have reduced it
  // How far this rank is, in chunks of this use; guarded by Engine::work_mutex_.
  std::uint64_t copied_in_ = 0, reduced_ = 0, copied_out_ = 0;
  int seen_ = 0;  // ranks below this one are known to have what the next action needs

  void* result_ = nullptr;
  Measured measured_;  // by this rank, and in the end by all
  std::shared_ptr<const Marks> marks_;
  std::vector<MeasuredPart> parts_;  // by mark
  Error error_;
  std::atomic<State> state_{State::pending};
};

class Engine {
 public:
  /// `control` is this rank's own segment, kept by the caller. Peers are added before start(). `streams`: nullptr if
  /// all are on one host.
  Engine(Team team, Control* control, const GroupOptions& options, Streams* streams);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void add_peer(int rank, const Control* control);
  void start();

  /// `plain_region` makes the ring for a plain channel on its first use.
  using RegionMaker = std::function<Result<std::shared_ptr<SharedRegion>>(const std::string& name, std::size_t bytes)>;
  Result<std::shared_ptr<Work>> submit(const Request& request, const RegionMaker& plain_region);
  Status wait(const Work& work);
  Result<std::vector<std::string>> exchange(std::string_view row);
  Status confirm();
  const Topology& topology() const { return topology_; }
  bool is_local(int rank) const { return topology_.host_of[rank] == topology_.host_of[team_.rank]; }

  /// The first reason stands. When this returns, nothing is published any more.
  void fence(Error why);
  bool fenced() const { return fence_.up(); }
  bool full() const { return control_->channels.load(std::memory_order_relaxed) == kMaxChannels; }
  /// A rank of this host has ended the view. Asked after everything that an act needs was seen to be complete: if not,
  /// those who end the view from here on find it complete as well.
  bool any_fenced() const;
  /// See Group.
  bool settle(Work& work);
  std::optional<std::vector<std::string>> settle_exchange();
  std::optional<std::string> published_row(int rank);
  std::optional<double> published_weight(Work& work, int rank);
  /// A peer left in good order: what it published stays, and only what needs more of it fails.
  void depart(int rank);
  /// Something outside the operations changed (a region became ready): look again.
  void nudge();

 private:
  friend class Diagnosis;
  enum class Moved { no, yes };

  /// nullptr: there is no room for another one.
  Result<LocalChannel*> channel_for(const Request& request, const RegionMaker& plain_region);
  static std::shared_ptr<Work> without_channel();
  bool progress();  // guarded by work_mutex_
  bool try_progress(int waiting_here, bool last = false);
  Moved advance(Work& work);  // guarded by work_mutex_
  using Ranks = std::vector<int>;
  bool all_have(Work& work, const Ranks& ranks, std::atomic<std::uint64_t> Channel::*counter, std::uint64_t target);
  static bool least_is(const Work& work, const Ranks& ranks, std::atomic<std::uint64_t> Channel::*counter,
                       std::uint64_t target);
  const Channel* peer_of(Work& work, int rank);
  Moved advance_registered(Work& work);
  Moved advance_plain(Work& work);
  void reduce_pieces(Work& work, const std::vector<Piece>& pieces, std::size_t in_shift, std::byte* result,
                     bool streaming);
  /// Stores a counter of the own channel, and rings if that may be what somebody sleeps for: if no other rank is still
  /// behind. The last one of several that publish at once sees all the others, so one of them rings. True if it rang.
  bool publish(LocalChannel& channel, Counter counter, std::uint64_t value, std::uint64_t use);
  bool all_published(Work& work);
  /// All have described the channel, and have reduced what has to be over before this chunk of the work crosses: then
  /// nobody is sent what it does not expect.
  bool may_cross(Work& work, std::uint64_t chunk);
  /// What this host's ranks gave is in `result`: begins to carry this rank's part of that chunk of the work.
  void begin_crossing(Work& work, std::uint64_t chunk, std::byte* result);
  /// True once everything that this rank carries is final.
  bool cross(Work& work, Crossing& crossing);
  void finalise(Work& work, Crossing& crossing, Leg& leg);
  bool crossed(Work& work);
  void end_crossing(Work& work);
  void publish_reduced(Work& work, std::uint64_t chunks);
  Moved conclude(Work& work);
  static void add_measured(Work& work);
  /// Where what is reduced together with the byte at `at` ends at the latest.
  static std::size_t end_of_part(const Work& work, std::size_t at);
  static void note(Work& work, std::size_t at, const Measured& measured, std::size_t final_elements);
  void copy_out(Work& work, std::uint64_t chunk);
  void finish(Work& work);
  void fail(Work& work, Error why);
  void ring();
  /// What the thread does while nobody waits, or a sleep.
  void work_in_background();
  template <class Done>
  Status wait_until(const Done& done, std::uint32_t blocked_on);
  template <class Done>
  void sleep(const Done& done);
  /// Publishes why this rank gives up, for the others.
  void complain(const Error& why);
  /// What another rank published, if any.
  std::optional<Error> complaint_of_others() const;
  /// The departed rank that this operation or row can never get what it needs from, or -1.
  static Error departure(int rank);
  int departed_before(Work& work);

  const Team team_;
  const Topology topology_;
  Control* const control_;
  Ranks everybody_, neighbours_;    // all ranks; those of this host, this one included
  std::unique_ptr<Bridge> bridge_;  // nullptr if all are on one host
  const GroupOptions options_;
  Crowding crowding_;
  SteadyClock clock_;
  std::vector<const Control*> controls_;  // by rank, own included; fixed after start()

  std::mutex submit_mutex_;
  std::unordered_map<std::string, std::deque<std::unique_ptr<LocalChannel>>> channels_;  // guarded by submit_mutex_
  std::vector<std::shared_ptr<Work>> inbox_;                                             // guarded by submit_mutex_

  std::mutex work_mutex_;
  std::vector<std::shared_ptr<Work>> active_;  // guarded by work_mutex_
  std::vector<PeerDirectory> directories_;     // guarded by work_mutex_
  Contributions contributions_;                // guarded by work_mutex_

  Rows rows_;
  Fence fence_;
  Departures departures_;
  std::atomic<int> in_flight_{0};
  std::atomic<int> helpers_{0};         // threads in wait_until()
  std::atomic<bool> passed_by_{false};  // somebody will sleep because another thread works
  std::atomic<bool> started_{false};
  Background background_;
};

}  // namespace pliant::collective
