// A worker's part in its job's membership: the machine that agrees on views with the other workers, driven by what
// the transport hears from them and from the coordinator. That happens on the transport's thread; the training thread
// asks and waits.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/condition.h"
#include "base/result.h"
#include "collective/group.h"
#include "membership/member.h"
#include "membership/settle.h"
#include "membership/view.h"
#include "session/absentees.h"
#include "session/returns.h"
#include "session/step_signs.h"
#include "session/transport.h"

namespace pliant::session {

struct RosterOptions {
  std::string job;
  wire::Member self;
  membership::View view{};  ///< without members: learn it from the coordinator
  bool has_coordinator = false;
  bool has_store = false;  ///< outside of the job
  std::uint8_t cpu_level = 0;
  std::string build{};
  TransportOpener open{};
};

/// What a store was asked.
struct StoreQuestion {
  bool open = false;        ///< an answer is on its way
  bool unanswered = false;  ///< there was none the last time
};

/// Threads: any.
class Roster {
 public:
  explicit Roster(RosterOptions options);
  ~Roster();
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;

  /// Enters a view with all of its members; see Transport.
  Result<std::unique_ptr<collective::Group>> form(collective::Team team) { return transport_->form(std::move(team)); }
  std::uint64_t self() const { return options_.self.id; }
  const std::string& job() const { return options_.job; }
  bool has_coordinator() const { return options_.has_coordinator; }

  /// Waits for the coordinator's first word: the job's view, with this worker in it or (a newcomer) not.
  Result<membership::View> await_first();
  bool is_member() const { return signs_.inside(); }
  /// The newest view that this worker adopted.
  membership::View view() const;
  /// Its process is gone: nothing that it could write will change any more. Whoever has said goodbye may live on.
  bool is_dead(std::uint64_t id) const;

  /// The group to fence when its view ends; nullptr before it is destroyed. Fenced at once if that has happened.
  void guard(collective::Group* group);

  /// The view has ended, or is about to: await_next() says what follows.
  bool must_change() const { return signs_.changes(); }
  /// Waits for the view to go on in: in force, and not taken yet. All who are in it have fenced what was before.
  /// Nothing: the others go on without this worker.
  std::optional<membership::View> await_next();
  /// It is entered, or about to be.
  void took(const membership::View& view);
  /// Goes on in `view`, which has the members of the one before, with the same group; false if somebody has entered it
  /// with a new one. Whoever does so later fences the group, and await_next() tells that view again.
  bool keep_group(const membership::View& view);
  /// A connection was lost while `view` was being entered. If nothing else follows from that, because those who are in
  /// it have heard each other since, the members agree on another view.
  void cannot_enter(const membership::View& view);
  /// There is no room left in `view`, in which this worker is: the members agree on another one, unless they do so
  /// already.
  void end_view(const membership::View& view);
  /// This worker has the job's state.
  void set_holds();
  /// After a step with unanimous summaries: `view` follows, unless a loss comes first. await_next() tells.
  void adopt(const membership::View& view);
  /// Outside of any view: asks to be taken in, and waits for that. False if the job is over. Without a coordinator
  /// there is nobody to ask: Failure. A worker that is left behind again and again waits longer each time before it
  /// asks, because every return costs the others a change of view.
  bool await_entry(const std::string& layout);

  /// What is planned, once there are connections to all who come.
  std::optional<membership::View> plan() const;
  /// This worker wants to leave after the current step.
  void leave_soon() { leaves_ = true; }
  bool leaves() const { return leaves_; }
  /// Somebody who was left behind lives, as far as is known, and will come back.
  bool expects_somebody_back() const;

  /// What this worker shares, in words: the coordinator refuses newcomers that share something else.
  void set_layout(const std::string& layout);
  void report(wire::Progress progress);
  /// This worker has gone on in `view`.
  void report_adopted(const membership::View& view, std::uint64_t step);
  /// `settled`: whoever is not needed then need not wait.
  void ask_for(std::uint32_t workers, bool settled = false);
  void ask_to_replace(std::uint64_t worker);
  /// Writes down how this worker's loop has ended, and tells the coordinator.
  void report_outcome(Outcome outcome, std::uint64_t step);
  /// Tells the others and the coordinator that this worker goes, and the latter how.
  void say_goodbye(Outcome outcome, std::uint64_t step);
  /// After that: ends all connections, as if this process had ended.
  void hang_up() { transport_->hang_up(); }

 private:
  /// Holds the mutex; what the training thread may have to know has been shown when it is let go.
  class Held;  // roster_held.h

  // roster_events.cc
  void on_letter(std::uint64_t from, const wire::Message& message);
  void on_entered(std::uint64_t from, const wire::Entered& entered);  // guarded by mutex_
  void on_lost(const collective::PeerLoss& loss);
  void testify(const collective::PeerLoss& loss);  // guarded by mutex_
  void on_found(std::uint64_t id);
  void on_tick();
  void suspect_unreached();  // guarded by mutex_
  void name_unreached();     // guarded by mutex_
  void on_coordinator(const wire::Message& message);
  void on_silence(Nanos since, const std::string& why);
  /// Somebody waits for another view: workers that left in good order are as good as dead.
  void give_up_on_departed();                        // guarded by mutex_
  void apply(const membership::Decision& decision);  // guarded by mutex_
  void report_view();                                // guarded by mutex_
  void on_view(const wire::ViewNotice& notice);      // guarded by mutex_
  void meet(const std::vector<wire::Member>& members);
  void ask_store(const membership::View& view);  // guarded by mutex_
  wire::Join introduction() const;
  bool outside() const { return place_ != Place::inside; }  // guarded by mutex_
  void become_newcomer();                                   // guarded by mutex_
  void tell_ready();                                        // guarded by mutex_
  std::uint64_t newest_known() const;                       // epoch of a view; guarded by mutex_
  void note_view(const membership::View& view);             // guarded by mutex_
  void note_votes(const membership::Decision& decision);    // guarded by mutex_
  void show();                                              // guarded by mutex_

  RosterOptions options_;
  const Clock& clock_;
  std::atomic<bool> leaves_{false};
  StepSigns signs_;

  mutable std::mutex mutex_;
  std::unique_ptr<Condition> changed_;
  std::optional<membership::Member> member_;  // guarded by mutex_; a new one when this worker comes back
  std::optional<membership::View> next_;      // guarded by mutex_
  std::optional<membership::View> first_;     // guarded by mutex_; the coordinator's first word
  Status failure_;                            // guarded by mutex_; why there will be no view
  bool over_ = false;                         // guarded by mutex_
  std::string objection_;                     // of the coordinator, to the last wish it refused; guarded by mutex_
  enum class Place { outside, asking, inside };
  Place place_ = Place::outside;        // of a view; asking to be taken in; guarded by mutex_
  std::uint64_t formed_ = 0;            // guarded by mutex_; hash of the view that somebody entered last
  std::uint64_t kept_ = 0;              // guarded by mutex_; hash of the view entered with the group before
  std::uint64_t reported_ = 0;          // guarded by mutex_; hash of the view that the coordinator was told of
  Absentees absentees_;                 // guarded by mutex_
  std::string layout_;                  // guarded by mutex_
  std::uint64_t step_ = 0;              // guarded by mutex_
  wire::LastView noted_;                // guarded by mutex_; what this worker has left in writing
  collective::Group* group_ = nullptr;  // guarded by mutex_
  Returns returns_;                     // guarded by mutex_

  std::map<std::uint64_t, Nanos> unreached_;  // of the plan, or of the view to recover from; guarded by mutex_
  StoreQuestion question_;                    // guarded by mutex_
  std::unique_ptr<Transport> transport_;      // last: its thread uses everything above
};

}  // namespace pliant::session
