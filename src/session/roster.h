// A worker's part in its job's membership: the connections to the other workers, the machine that agrees on views with
// them, and the line to the coordinator. Everything happens on the mesh's thread; the training thread asks and waits.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "collective/group.h"
#include "collective/mesh.h"
#include "membership/member.h"
#include "membership/settle.h"
#include "membership/store.h"
#include "membership/view.h"
#include "session/coordinator_link.h"

namespace pliant::session {

struct RosterOptions {
  std::string job;
  wire::Member self;
  Fd listener;              ///< at self.address
  membership::View view;    ///< without members: learn it from the coordinator
  std::string coordinator;  ///< its address; empty: there is none
  std::uint8_t cpu_level = 0;
  std::string build;
  std::optional<collective::HostsOptions> hosts{};  ///< of a job on several
  std::string store{};                              ///< the address of one outside of the job; empty: there is none
};

/// Threads: any.
class Roster {
 public:
  explicit Roster(RosterOptions options);
  ~Roster();
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;

  collective::Mesh& mesh() { return *mesh_; }
  std::uint64_t self() const { return options_.self.id; }
  const std::string& job() const { return options_.job; }
  bool has_coordinator() const { return !options_.coordinator.empty(); }

  /// Waits for the coordinator's first word: the job's view, with this worker in it or (a newcomer) not.
  Result<membership::View> await_first();
  bool is_member() const;
  /// The newest view that this worker adopted.
  membership::View view() const;

  /// The group to fence when its view ends; nullptr before it is destroyed. Fenced at once if that has happened.
  void guard(collective::Group* group);
  /// Workers that left without notice are as good as dead: somebody waits for them.
  void give_up_on_departed();

  /// The view has ended, or is about to: await_next() says what follows.
  bool must_change() const;
  /// Waits for the view to go on in: in force, and not taken yet. All who are in it have fenced what was before.
  /// Nothing: the others go on without this worker.
  std::optional<membership::View> await_next();
  /// It is entered, or about to be.
  void took(const membership::View& view);
  /// After a step with unanimous summaries: `view` follows, unless a loss comes first. await_next() tells.
  void adopt(const membership::View& view);
  /// Outside of any view: asks to be taken in, and waits for that. False if the job is over. Without a coordinator
  /// there is nobody to ask: Failure.
  bool await_entry(const std::string& layout);

  /// What is planned, once there are connections to all who come.
  std::optional<membership::View> plan() const;
  /// This worker wants to leave after the current step.
  void leave_soon() { leaves_ = true; }
  bool leaves() const { return leaves_; }

  /// What this worker shares, in words: the coordinator refuses newcomers that share something else.
  void set_layout(const std::string& layout);
  void report(wire::Progress progress);
  void report_adopted(const membership::View& view, std::uint64_t step);
  /// `settled`: whoever is not needed then need not wait.
  void ask_for(std::uint32_t workers, bool settled = false);
  void ask_to_replace(std::uint64_t worker);
  /// Tells the others and the coordinator that this worker goes in good order.
  void say_goodbye();

 private:
  void on_letter(std::uint64_t from, const wire::Message& message);
  void on_lost(const collective::PeerLoss& loss);
  void testify(std::uint64_t id);  // guarded by mutex_
  void on_found(std::uint64_t id);
  void on_tick();
  void on_coordinator(const wire::Message& message);
  void apply(const membership::Decision& decision);  // guarded by mutex_
  void on_view(const wire::ViewNotice& notice);      // guarded by mutex_
  void meet(const std::vector<wire::Member>& members);
  void ask_store(const membership::View& view);
  wire::Join introduction() const;

  RosterOptions options_;
  SteadyClock clock_;
  std::atomic<bool> leaves_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<membership::Member> member_;  // guarded by mutex_; a new one when this worker comes back
  std::optional<membership::View> next_;      // guarded by mutex_
  std::optional<membership::View> first_;     // guarded by mutex_; the coordinator's first word
  Status failure_;                            // guarded by mutex_; why there will be no view
  bool over_ = false;                         // guarded by mutex_
  std::string objection_;                     // of the coordinator, to the last wish it refused; guarded by mutex_
  bool outside_ = true;                       // guarded by mutex_; in no view
  std::set<std::uint64_t> departed_;          // guarded by mutex_
  std::string layout_;                        // guarded by mutex_
  std::uint64_t step_ = 0;                    // guarded by mutex_
  collective::Group* group_ = nullptr;        // guarded by mutex_

  std::unique_ptr<CoordinatorLink> link_;       // used on the mesh's thread
  std::unique_ptr<membership::Store> store_;    // the same
  bool asking_ = false, store_silent_ = false;  // the same
  std::unique_ptr<collective::Mesh> mesh_;      // last: its thread uses everything above
};

}  // namespace pliant::session
